"""Schedules of standbys: when to make them, and when to measure their memory. Pure."""

from everstep_common.reports import Standbys

# A launcher that has nothing to do for so long waits for something.
_IDLE_S = 1.0
# Where a script reports no steps, ranks are taken for settled this long after their start.
_UNHEARD_S = 60.0


class StandbySchedule:
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

    def claim_due(self, now_s: float) -> bool:
        """Return once whether it is time."""
        if self._at_s is None or now_s < self._at_s:
            return False
        self._at_s = None
        return True


# A standby that imports can grow by a gigabyte in a second; one that waits grows only by pages that
# others stop sharing with it.
_MAKING_S = 1.0
_WAITING_S = 60.0
# Shared pages come and go all the time: a change below this share is not reported.
_NEWS_SHARE = 0.1


class MemorySchedule:
    """Schedule of memory measurements; times are those of one monotonic clock, in seconds."""

    def __init__(self) -> None:
        self._at_s: float | None = None

    def begin(self) -> None:
        """One is being made."""
        self._at_s = 0.0

    def end(self) -> None:
        """There is none."""
        self._at_s = None

    def due_in_s(self, now_s: float) -> float | None:
        """Return after how long `take` says yes; None: there is nothing to look at."""
        return None if self._at_s is None else max(0.0, self._at_s - now_s)

    def claim_due(self, now_s: float, *, making: bool) -> bool:
        """Return whether it is time; the next time is chosen then."""
        if self._at_s is None or now_s < self._at_s:
            return False
        self._at_s = now_s + (_MAKING_S if making else _WAITING_S)
        return True


def is_news(told: Standbys, now: Standbys) -> bool:
    """Return whether the agent should hear of a change."""
    if (told.ready, told.making, told.ended) != (now.ready, now.making, now.ended):
        return True
    return abs(now.memory_bytes - told.memory_bytes) > _NEWS_SHARE * told.memory_bytes
