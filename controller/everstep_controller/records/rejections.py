"""Rejected records: one row a minute per node and kind, so that nobody can fill the journal."""

from dataclasses import dataclass, replace

from everstep_common.printable import printable
from everstep_controller.core.events import RecordRejected

ROW_NS = 60_000_000_000
_ERROR_BYTES_MAX = 512


@dataclass(frozen=True, slots=True)
class Rejection:
    """One record, or other message, that cannot be used. ``job`` is empty where it names none."""

    node: str
    kind: str
    job: str
    error: str


@dataclass(slots=True)
class _Minute:
    """Rejections since the last row; ``event`` is None while there are none."""

    since_ns: int
    event: RecordRejected | None = None


class Rejections:
    """Counts rejections between rows. The first of its node and kind is a row at once."""

    def __init__(self) -> None:
        self._minutes: dict[tuple[str, str], _Minute] = {}

    def add(self, rejection: Rejection, now_ns: int) -> list[RecordRejected]:
        """Take a rejection; return the row that is due at once."""
        key = (rejection.node, rejection.kind)
        event = RecordRejected(*key, rejection.job, _bounded(rejection.error), 1)
        minute = self._minutes.get(key)
        if minute is None:
            self._minutes[key] = _Minute(now_ns)
            return [event]
        self._count(minute, event)
        return []

    def tick(self, now_ns: int) -> list[RecordRejected]:
        """Return the rows whose minute is over."""
        rows = []
        for key, minute in list(self._minutes.items()):
            if now_ns - minute.since_ns < ROW_NS:
                continue
            if minute.event is None:
                del self._minutes[key]
            else:
                rows.append(minute.event)
                self._minutes[key] = _Minute(now_ns)
        return rows

    def flush(self) -> list[RecordRejected]:
        """Return everything that is counted and not in a row."""
        minutes, self._minutes = self._minutes, {}
        return [minute.event for minute in minutes.values() if minute.event is not None]

    def not_written(self, event: RecordRejected) -> None:
        """Count the records of a row again with the next one: it could not be journaled."""
        minute = self._minutes.get((event.node, event.kind))
        if minute is not None:
            self._count(minute, event)

    @staticmethod
    def _count(minute: _Minute, event: RecordRejected) -> None:
        first = minute.event or replace(event, count=0)
        minute.event = replace(first, count=first.count + event.count)


def _bounded(error: str) -> str:
    """Return at most 512 bytes of a sentence: it goes into the journal, and to people."""
    return printable(error).encode(errors="replace")[:_ERROR_BYTES_MAX].decode(errors="ignore")
