"""Log rate limit: few lines, however often something happens; a step may take a millisecond."""

import logging
from collections import deque
from collections.abc import Callable

from everstep_common.clock import boot_ns

# The first lines tell what is wrong and that it is over; after these, one in a minute.
_LINES = 5
_WINDOW_NS = 5 * 60 * 1_000_000_000


class Sparing:
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
