"""Step reports to the agent: steps read from the ranks' output, no more often than needed."""

from collections.abc import Callable

from everstep_common.clock import boot_ns
from everstep_common.trainer_messages import StepSeen

# As often as the agent tells the controller.
_INTERVAL_NS = 200_000_000


class SeenSteps:
    """Steps of one generation, whichever rank prints them first."""

    def __init__(self, tell: Callable[[object], None]) -> None:
        self._tell = tell
        self._generation = 0
        self._newest = -1
        self._pending: StepSeen | None = None
        self._next_ns = 0

    def begin(self, generation: int) -> None:
        """Another generation starts."""
        self._generation, self._newest, self._pending = generation, -1, None

    def seen(self, step: int) -> None:
        """A rank said that it has completed a step."""
        if step <= self._newest:
            return
        self._newest, now_ns = step, boot_ns()
        self._pending = StepSeen(self._generation, step, now_ns)
        if now_ns >= self._next_ns:
            self.flush()

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called, if at all."""
        return max(0.0, (self._next_ns - boot_ns()) / 1e9) if self._pending else None

    def advance(self) -> None:
        """Tell what is due."""
        if self._pending and boot_ns() >= self._next_ns:
            self.flush()

    def flush(self) -> None:
        """Tell the newest step now, as what comes next must not overtake it."""
        if self._pending:
            self._tell(self._pending)
            self._pending = None
            self._next_ns = boot_ns() + _INTERVAL_NS
