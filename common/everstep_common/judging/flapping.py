"""Flapping of a finding: one that comes and goes stays open until it has been over for a while."""

from dataclasses import dataclass, field

# A finding that was raised so often within this time flaps …
RAISED_MAX = 3
WITHIN_NS = 60_000_000_000
# … and is over when it was well for this long without a break.
QUIET_NS = 60_000_000_000


@dataclass(slots=True)
class Flapping:
    """When a finding was raised lately, and since when it is well while it is kept open."""

    raised_ns: list[int] = field(default_factory=list)
    # 0 while it is bad, or not kept open.
    well_since_ns: int = 0

    def note_raised(self, now_ns: int) -> None:
        """Take note that it was found, or found again while it is kept open."""
        self.raised_ns = [*self.raised_ns, now_ns][-RAISED_MAX:]
        self.well_since_ns = 0

    def keeps_open(self, now_ns: int) -> bool:
        """Return whether it stays open though it is well now, and take note of that."""
        if not self.well_since_ns and self.is_recent(now_ns) and len(self.raised_ns) == RAISED_MAX:
            self.well_since_ns = now_ns
        return bool(self.well_since_ns) and now_ns < self.over_at_ns

    def is_recent(self, now_ns: int) -> bool:
        """Return whether it was raised so lately that the oldest time of it still counts."""
        return now_ns - self.raised_ns[0] <= WITHIN_NS

    @property
    def over_at_ns(self) -> int:
        """Return when it is over, unless it is found again."""
        return self.well_since_ns + QUIET_NS
