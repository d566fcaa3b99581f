"""Stalls: how late the controller's own event loop is, and which of its absences are forgiven."""

from dataclasses import dataclass

# How often the loop is seen to turn, and how much later than that it has stood still. A second is
# longer than any decision takes, and as long as peers have to answer about a silent node.
BEAT_NS = 250_000_000
LATE_NS = 1_000_000_000
# So many stalls in a row are forgiven: a controller that is always late would judge nothing at all.
FORGIVEN_MAX = 3
# A stall that begins within this time after another is in one row with it.
CALM_NS = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Absence:
    """Time in which the controller heard nobody."""

    began_ns: int
    ended_ns: int

    @property
    def duration_ns(self) -> int:
        """Return how long it was."""
        return self.ended_ns - self.began_ns

    def postponed_ns(self, due_ns: int) -> int:
        """Return when something is due that has the time again which it had when this began."""
        if self.began_ns < due_ns <= self.ended_ns:
            return self.ended_ns + (due_ns - self.began_ns)
        return due_ns


class StallWatch:
    """Judge of the loop's lateness; it is told every time the loop turns, a few times a second."""

    def __init__(self, now_ns: int) -> None:
        self._seen_ns = now_ns
        self._last: Absence | None = None
        self._in_row = 0
        # All stalls so far, forgiven or not.
        self.count = 0

    def turned(self, now_ns: int) -> Absence | None:
        """Enter that the loop turns; return a stall that has just ended."""
        before_ns, self._seen_ns = self._seen_ns, now_ns
        if now_ns - before_ns <= BEAT_NS + LATE_NS:
            return None
        in_row = self._last is not None and before_ns - self._last.ended_ns < CALM_NS
        self._in_row = self._in_row + 1 if in_row else 1
        self._last = Absence(before_ns, now_ns)
        self.count += 1
        return self._last

    @property
    def forgiving(self) -> bool:
        """Return whether the newest stall is one of the first in its row."""
        return self._in_row <= FORGIVEN_MAX
