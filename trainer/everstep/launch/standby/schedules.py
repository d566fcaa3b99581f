"""Timing of standbys: made only while nothing else needs the processors. Pure."""

# A launcher that has nothing to do for so long waits for something.
_IDLE_S = 1.0
# Where a script reports no steps, ranks are taken for settled this long after their start.
_UNHEARD_S = 60.0


class Timing:
    """Schedule for making standbys; times are those of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._at_s: float | None = None

    def idle(self, now_s: float) -> None:
        """No rank runs here, and none is to be started."""
        self._at_s = now_s + _IDLE_S

    def started(self, now_s: float) -> None:
        """Ranks were started."""
        self._at_s = now_s + _UNHEARD_S

    def settled(self, now_s: float) -> None:
        """All ranks here have completed a step."""
        self._at_s = now_s

    def never(self) -> None:
        """The launcher ends."""
        self._at_s = None

    def due_in_s(self, now_s: float) -> float | None:
        """Return after how long `take` says yes; None: not until something happens."""
        return None if self._at_s is None else max(0.0, self._at_s - now_s)

    def take(self, now_s: float) -> bool:
        """Return once whether it is time."""
        if self._at_s is None or now_s < self._at_s:
            return False
        self._at_s = None
        return True
