"""Flapping of a finding: one that comes and goes, or changes, is reported a few times only.

One that is raised and cleared stays open until it has been over for a while, and one that gets
worse and better stays as bad as it was. So the last word always arrives, late at most by that.
"""

from dataclasses import dataclass, field

from everstep_common.judging.findings import Finding, Severity

# A finding that was raised so often within this time flaps, as does one that has changed so often …
RAISED_MAX = 3
CHANGED_MAX = 3
WITHIN_NS = 60_000_000_000
# … and is over, or better, when it was so for this long without a break.
QUIET_NS = 60_000_000_000
_RANKS = {severity: rank for rank, severity in enumerate(Severity, start=1)}


def is_news(known: Finding | None, found: Finding | None) -> bool:
    """Return whether what to do changed; a message with other numbers in it is no news.

    None is a component that is well. What is real never becomes injected; what was injected becomes
    real with the first real reading.
    """
    if known is None or found is None:
        return known is not found
    if known.injected != found.injected:
        return known.injected
    old = (known.severity, known.suggested_action, known.rule, known.mode)
    return old != (found.severity, found.suggested_action, found.rule, found.mode)


def is_worse(known: Finding | None, found: Finding | None) -> bool:
    """Return whether something got worse, or turned out to be real: that never waits."""
    if found is None:
        return False
    if known is None or (known.injected and not found.injected):
        return True
    return _RANKS[found.severity] > _RANKS[known.severity]


@dataclass(slots=True)
class ChangeDamper:
    """When changes were told lately, and since when the one that is held back has been true."""

    told_ns: list[int] = field(default_factory=list)
    # 0: none is held back.
    held_since_ns: int = 0
    # When one was held back last.
    held_ns: int = 0

    def lets_pass(self, now_ns: int, *, worse: bool, same_as_held: bool) -> bool:
        """Return whether a change is reported now; note that, or that it is held back."""
        if not self.held_since_ns or not same_as_held:
            self.held_since_ns = max(now_ns, 1)
        if not worse and self.is_busy(now_ns) and not self.is_due(now_ns):
            self.held_ns = max(now_ns, 1)
            return False
        self.note_told(now_ns)
        return True

    def note_told(self, now_ns: int) -> None:
        """Note that a change was reported, so none is held back."""
        self.told_ns = [*self.told_ns, now_ns][-CHANGED_MAX:]
        self.held_since_ns = 0

    def is_busy(self, now_ns: int) -> bool:
        """Return whether as many changes as may be were told lately, or one was held back."""
        many = len(self.told_ns) == CHANGED_MAX and now_ns - self.told_ns[0] <= WITHIN_NS
        return many or (self.held_ns > 0 and now_ns - self.held_ns <= WITHIN_NS)

    def is_due(self, now_ns: int) -> bool:
        """Return whether what is held back has been true for long enough."""
        return self.held_since_ns > 0 and now_ns >= self.due_at_ns

    def is_recent(self, now_ns: int) -> bool:
        """Return whether recent reports still count; where none was made, none does."""
        told = bool(self.told_ns) and now_ns - self.told_ns[-1] <= WITHIN_NS
        return told or self.is_busy(now_ns)

    @property
    def due_at_ns(self) -> int:
        """Return when a change that is held back is reported, unless it changes again."""
        return self.held_since_ns + QUIET_NS


@dataclass(slots=True)
class Flapping:
    """When a finding was raised and changed lately, and what of that is not told yet."""

    raised_ns: list[int] = field(default_factory=list)
    # Since when it is well while it is kept open; 0 while it is bad, or not kept open.
    well_since_ns: int = 0
    changes: ChangeDamper = field(default_factory=ChangeDamper)
    # What it has become, while that is held back.
    held: Finding | None = None

    def note_raised(self, now_ns: int) -> None:
        """Take note that it was found, or found again while it is kept open."""
        self.raised_ns = [*self.raised_ns, now_ns][-RAISED_MAX:]
        self.well_since_ns = 0

    def keeps_open(self, now_ns: int) -> bool:
        """Return whether it stays open though it is well now, and take note of that."""
        self.drop_held()
        recent = bool(self.raised_ns) and self.is_recent(now_ns)
        if not self.well_since_ns and recent and len(self.raised_ns) == RAISED_MAX:
            self.well_since_ns = now_ns
        return bool(self.well_since_ns) and now_ns < self.over_at_ns

    def holds_back(self, known: Finding, found: Finding, now_ns: int) -> bool:
        """Return whether a change of an open finding is not told now, and take note of that."""
        same = self.held is not None and not is_news(self.held, found)
        if self.changes.lets_pass(now_ns, worse=is_worse(known, found), same_as_held=same):
            self.held = None
            return False
        self.held = found
        return True

    def take_due(self, now_ns: int) -> Finding | None:
        """Return, once, what was held back and has been true for long enough."""
        if self.held is None or not self.changes.is_due(now_ns):
            return None
        due = self.held
        self.changes.note_told(now_ns)
        self.held = None
        return due

    def drop_held(self) -> None:
        """Hold nothing back: the finding is again as it was reported, or over."""
        self.held, self.changes.held_since_ns = None, 0

    def is_recent(self, now_ns: int) -> bool:
        """Return whether it was raised so lately that the oldest time of it still counts."""
        return now_ns - self.raised_ns[0] <= WITHIN_NS

    @property
    def over_at_ns(self) -> int:
        """Return when it is over, unless it is found again."""
        return self.well_since_ns + QUIET_NS
