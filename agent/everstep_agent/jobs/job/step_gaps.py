"""Step gaps: the time between the newest steps of one rank, and what of it is usual. Pure."""

from collections import deque

# So many of them are kept: 4 KB a rank.
GAPS_MAX = 512
# The first steps of a generation load, compile and fill caches.
FIRST_STEPS = 3


class StepGaps:
    """Steps of one rank in one generation; times are nanoseconds of the boot clock."""

    def __init__(self) -> None:
        self.step: int | None = None
        self.at_ns = 0
        self._gaps: deque[int] = deque(maxlen=GAPS_MAX)
        self._steps = 0
        self._sorted: list[int] | None = None
        # Whether something else than steps was done in the gap that goes on.
        self._spoiled = False

    @property
    def count(self) -> int:
        """How many gaps are known."""
        return len(self._gaps)

    def add(self, step: int, at_ns: int) -> int:
        """Take a step; return the gap that it ended if that tells what is usual, else 0."""
        if self.step is not None and step <= self.step:
            return 0
        gap_ns = max(0, at_ns - self.at_ns)
        taught = self._steps >= FIRST_STEPS and not self._spoiled
        self.step, self.at_ns = step, max(at_ns, self.at_ns)
        self._steps += 1
        self._spoiled = False
        if not taught:
            return 0
        self._gaps.append(gap_ns)
        self._sorted = None
        return gap_ns

    def spoil(self) -> None:
        """Learn nothing from the gap that goes on."""
        self._spoiled = True

    def quantile_ns(self, share: float) -> int:
        """Return the gap that this share of them does not exceed; 0 where none is known."""
        if not self._gaps:
            return 0
        if self._sorted is None:
            self._sorted = sorted(self._gaps)
        return self._sorted[min(len(self._sorted) - 1, int(share * len(self._sorted)))]
