"""Memory watch of standbys: when to measure them, and when a change is worth a report. Pure."""

from everstep_common.trainer_messages import Standbys

# A standby that imports can grow by a gigabyte in a second; one that waits grows only by pages that
# others stop sharing with it.
_MAKING_S = 1.0
_WAITING_S = 60.0
# Shared pages come and go all the time: a change below this share is not reported.
_NEWS_SHARE = 0.1


class MemoryWatch:
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

    def take(self, now_s: float, *, making: bool) -> bool:
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
