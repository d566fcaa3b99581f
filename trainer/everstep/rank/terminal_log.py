"""Terminal log: the SDK's warnings on stderr, as Everstep's, where a script has set up no logging.

Python writes such a warning without a word of whose it is; where a script has its own handlers,
these alone write it, by the name of the logger.
"""

import logging
import os
import sys

_NAME = "everstep"
# ECMA-48, "erase in line": what stands from the cursor on.
_ERASE = "\x1b[K"
# The launcher's, which reads a return as the end of a progress bar. A journal would show no line
# with one in it.
_LAUNCHER = "EVERSTEP_LAUNCHER"


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
