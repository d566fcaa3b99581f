"""Log limit: how many lines of a daemon's log one user, or one host, may cause in a minute.

A line that somebody outside can cause names its cause: ``logger.info(…, extra=by_user(uid))``; one
that begins with ``job %s`` is caused by that job. The first lines of each kind by each cause are
written, then they are counted, and a line after that minute says how many there were. Of what a
fault that lasts says again and again (``extra=once_a_minute(…)``) the first line is written.
"""

import logging
import re
from collections import OrderedDict
from dataclasses import dataclass

# Of one kind by one cause; of a job more, whose 64 ranks all restore, or store, at once.
LINES_A_MINUTE = 10
JOB_LINES_A_MINUTE = 130
_WINDOW_S = 60.0
# Kinds and causes that are told apart; strangers may have many addresses.
_CAUSES_MAX = 1024
_ATTRIBUTE = "caused_by"
_AT_MOST = "lines_a_minute"
_JOB_LINE = "job %s"
_NUMBERS = re.compile(r"\d+")
_REASON_MAX = 160

_Kind = tuple[str, str, str]


def by_user(uid: int) -> dict[str, str]:
    """Return ``extra`` of a line that a user of the node can cause."""
    return {_ATTRIBUTE: f"user {uid}"}


def by_host(host: str) -> dict[str, str]:
    """Return ``extra`` of a line that whoever reaches the node from a host can cause."""
    return {_ATTRIBUTE: f"host {host}"}


def once_a_minute(whose: str, reason: str) -> dict[str, object]:
    """Return ``extra`` of a line that comes again while a fault lasts.

    Its reason is the same fault whatever numbers are in it: steps, ranks and sizes.
    """
    cause = f"{whose}: {_NUMBERS.sub('#', reason)[:_REASON_MAX]}"
    return {_ATTRIBUTE: cause, _AT_MOST: 1}


@dataclass(slots=True)
class _Window:
    """A minute of one kind of line by one cause: when it began, and the lines in it."""

    began_s: float
    level: int
    most: int
    lines: int = 0


def _cause(record: logging.LogRecord) -> tuple[str, int]:
    """Return who caused a line, "" for nobody outside, and how many it may cause in a minute."""
    named = getattr(record, _ATTRIBUTE, "")
    if named or not str(record.msg).startswith(_JOB_LINE):
        return str(named), int(getattr(record, _AT_MOST, LINES_A_MINUTE))
    args = record.args if isinstance(record.args, tuple) else ()
    return (f"job {args[0]}" if args else ""), JOB_LINES_A_MINUTE


def dropped_lines() -> int:
    """Return how many lines this process did not write."""
    filters = (one for handler in logging.getLogger().handlers for one in handler.filters)
    return sum(one.dropped for one in filters if isinstance(one, LogLimit))


class LogLimit(logging.Filter):
    """Filter of a handler. A record's own time is its clock."""

    def __init__(self) -> None:
        super().__init__()
        # The window that began first comes first.
        self._windows: OrderedDict[_Kind, _Window] = OrderedDict()
        self.dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written."""
        self._tell_ended(record.created)
        cause, most = _cause(record)
        if not cause:
            return True
        kind = (record.name, str(record.msg), cause)
        window = self._windows.get(kind)
        if window is None:
            if len(self._windows) >= _CAUSES_MAX:
                self._tell(*self._windows.popitem(last=False))
            window = self._windows[kind] = _Window(record.created, record.levelno, most)
        window.lines += 1
        if window.lines <= most:
            return True
        self.dropped += 1
        return False

    def _tell_ended(self, now_s: float) -> None:
        """Tell of the minutes that are over. A clock that was set back ends all of them."""
        while self._windows:
            kind, window = next(iter(self._windows.items()))
            if 0 <= now_s - window.began_s < _WINDOW_S:
                return
            del self._windows[kind]
            self._tell(kind, window)

    def _tell(self, kind: _Kind, window: _Window) -> None:
        name, text, cause = kind
        if (more := window.lines - window.most) > 0:
            logging.getLogger(name).log(
                window.level, "%d more lines in a minute, caused by %s: %s", more, cause, text
            )
