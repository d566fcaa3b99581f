"""Controller clock: anchored to the wall clock at start, and never going back."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class ControllerClock:
    """Nanoseconds; steps of the wall clock while the controller runs do not show."""

    # Nothing may be earlier than the newest event in the journal.
    floor_ns: int = 0
    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    _anchor_ns: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._anchor_ns = max(self.wall_ns(), self.floor_ns) - self.monotonic_ns()

    def now_ns(self) -> int:
        """Return the time."""
        return self._anchor_ns + self.monotonic_ns()
