"""SDK log: the SDK's warnings, few of a kind, and on stderr where a script has set up no logging.

Python writes such a warning without a word of whose it is; where a script has its own handlers,
these alone write it, by the name of the logger. However often something happens, few lines tell
of it: a step may take a millisecond.
"""

import logging
import os
import sys
from collections import deque
from collections.abc import Callable

from everstep_common.clock import boot_ns

_NAME = "everstep"
# ECMA-48, "erase in line": what stands from the cursor on.
_ERASE = "\x1b[K"
# The launcher's, which reads a return as the end of a progress bar. A journal would show no line
# with one in it.
_LAUNCHER = "EVERSTEP_LAUNCHER"
# The first lines tell what is wrong and that it is over; after these, one in a minute.
_LINES = 5
_WINDOW_NS = 5 * 60 * 1_000_000_000


class TerminalLog(logging.Handler):
    """Handler of the SDK's logger that steps in where no other one of it writes."""

    @classmethod
    def install(cls) -> None:
        """Add one to the SDK's logger, once."""
        handlers = logging.getLogger(_NAME).handlers
        if not any(isinstance(handler, cls) for handler in handlers):
            logging.getLogger(_NAME).addHandler(cls(logging.WARNING))

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; a progress bar that has no end yet makes room for it."""
        logger = logging.getLogger(_NAME)
        others = logging.getLogger().handlers if logger.propagate else []
        if others or logger.handlers != [self] or sys.stderr is None:
            return
        try:
            shown = sys.stderr.isatty()
            begin = "\r" * (shown or _LAUNCHER in os.environ) + _ERASE * shown
            sys.stderr.write(f"{begin}everstep: {self.format(record)}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            self.handleError(record)


class RateLimitedLogger:
    """Logger of warnings that leaves out those that come too often."""

    def __init__(self, logger: logging.Logger, now_ns: Callable[[], int] = boot_ns) -> None:
        self._logger = logger
        self._now_ns = now_ns
        self._written_ns: deque[int] = deque(maxlen=_LINES)

    def warn(self, sentence: str, *values: object) -> bool:
        """Write a line if it is time for one; return whether it was."""
        now_ns = self._now_ns()
        full = len(self._written_ns) == _LINES
        if full and now_ns - self._written_ns[0] < _WINDOW_NS:
            return False
        self._written_ns.append(now_ns)
        self._logger.warning(sentence, *values)
        return True
