"""Rejected records: one row a minute per node, kind and user, so that none can fill the journal."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from everstep_common.printable import printable
from everstep_controller.core.events import RecordRejected

ROW_NS = 60_000_000_000
_ERROR_BYTES_MAX = 512
# How many kinds and users of one node have a row of their own each minute: more users than share a
# node, each with a kind or two. What an agent names beyond them is counted in one row together.
KEYS_MAX = 32
OTHERS = "others"

# Kind and user.
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Rejection:
    """One record, or other message, that cannot be used. ``job`` is empty where it names none.

    ``user`` is the uid whose job it is of; empty where that is not known.
    """

    node: str
    kind: str
    job: str
    error: str
    user: str = ""

    @property
    def sentence(self) -> str:
        """Return what is wrong, with the kind and the user, in at most 512 bytes."""
        return _bounded(f"{self.kind} of user {self.user or 'unknown'}: {self.error}")


@dataclass(slots=True)
class _Minute:
    """Rejections since the last row; ``event`` is None while there are none."""

    since_ns: int
    event: RecordRejected | None = None


class Rejections:
    """Counts rejections between rows. The first of its node, kind and user is a row at once."""

    def __init__(self) -> None:
        self._minutes: dict[str, dict[_Key, _Minute]] = {}

    def add(self, rejection: Rejection, now_ns: int) -> list[RecordRejected]:
        """Take a rejection; return the row that is due at once."""
        minutes = self._minutes.setdefault(rejection.node, {})
        event = _row(rejection)
        if (event.kind, event.user) not in minutes and len(minutes) >= KEYS_MAX:
            event = _row(replace(rejection, kind=OTHERS, user="", error=rejection.sentence))
        minute = minutes.get((event.kind, event.user))
        if minute is None:
            minutes[event.kind, event.user] = _Minute(now_ns)
            return [event]
        self._count(minute, event)
        return []

    def tick(self, now_ns: int) -> list[RecordRejected]:
        """Return the rows whose minute is over."""
        rows = []
        for node, key, minute in self._all():
            if now_ns - minute.since_ns < ROW_NS:
                continue
            if minute.event is None:
                self._drop(node, key)
            else:
                rows.append(minute.event)
                self._minutes[node][key] = _Minute(now_ns)
        return rows

    def flush(self) -> list[RecordRejected]:
        """Return everything that is counted and not in a row."""
        rows = [minute.event for _, _, minute in self._all() if minute.event is not None]
        self._minutes = {}
        return rows

    def not_written(self, event: RecordRejected) -> None:
        """Count the records of a row again with the next one: it could not be journaled."""
        minute = self._minutes.get(event.node, {}).get((event.kind, event.user))
        if minute is not None:
            self._count(minute, event)

    def _all(self) -> Iterator[tuple[str, _Key, _Minute]]:
        for node, minutes in list(self._minutes.items()):
            for key, minute in list(minutes.items()):
                yield node, key, minute

    def _drop(self, node: str, key: _Key) -> None:
        del self._minutes[node][key]
        if not self._minutes[node]:
            del self._minutes[node]

    @staticmethod
    def _count(minute: _Minute, event: RecordRejected) -> None:
        first = minute.event or replace(event, count=0)
        minute.event = replace(first, count=first.count + event.count)


def _row(one: Rejection) -> RecordRejected:
    return RecordRejected(one.node, one.kind, one.job, _bounded(one.error), 1, one.user)


def _bounded(error: str) -> str:
    """Return at most 512 bytes of a sentence: it goes into the journal, and to people."""
    return printable(error).encode(errors="replace")[:_ERROR_BYTES_MAX].decode(errors="ignore")
