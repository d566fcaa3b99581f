"""Timeline of a job: segments, each in one category and reaching to the start of the next.

The last one is open. Late evidence (a fault's onset, a step that was reported late) carves a piece
out of it, so categories always sum to the wall clock and none is ever a residual.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest

from everstep_controller.core.accounting.categories import Category

# Late evidence may change the timeline this far back; older segments are folded into the totals.
RESTATEMENT_NS = 120_000_000_000


@dataclass(slots=True)
class Segment:
    """Time from ``start_ns`` to the start of the next segment."""

    start_ns: int
    category: Category
    incident: str = ""


@dataclass(slots=True)
class Timeline:
    """Segments of a job, oldest first; all times are nanoseconds on the controller's timeline."""

    started_ns: int
    ended_ns: int | None = None
    segments: list[Segment] = field(default_factory=list)
    # What was folded: nanoseconds by category, and within it by incident, "" for none.
    folded: dict[Category, dict[str, int]] = field(default_factory=dict)
    incident: str = ""

    def enter(self, at_ns: int, category: Category, incident: str | None = None) -> None:
        """Label everything from ``at_ns`` on. Backdating overwrites what was there."""
        if self.ended_ns is not None:
            return
        if incident is not None:
            self.incident = incident
        at_ns = max(at_ns, self._horizon_ns())
        while self.segments and self.segments[-1].start_ns >= at_ns:
            self.segments.pop()
        self.segments.append(Segment(at_ns, category, self.incident))
        self._fold(at_ns)

    def relabel(self, names: Mapping[Category, Category], from_ns: int) -> None:
        """Give time from ``from_ns`` on, where it is in a category of ``names``, its other name."""
        starts = [segment.start_ns for segment in self.segments[1:]]
        told: list[Segment] = []
        for segment, until_ns in zip_longest(self.segments, starts):
            late = segment.category in names and (until_ns is None or from_ns < until_ns)
            if not late or segment.start_ns < from_ns:
                told.append(segment)
            if late:
                start_ns = max(from_ns, segment.start_ns)
                told.append(Segment(start_ns, names[segment.category], segment.incident))
        self.segments = told

    def totals(self, now_ns: int, incident: str | None = None) -> dict[Category, int]:
        """Return nanoseconds by category up to ``now_ns``; of one incident when one is named."""
        totals: Counter[Category] = Counter()
        for category, owners in self.folded.items():
            totals[category] += (
                sum(owners.values()) if incident is None else owners.get(incident, 0)
            )
        end_ns = self.wall_end_ns(now_ns)
        for segment, until_ns in self._spans(end_ns):
            if incident is None or segment.incident == incident:
                totals[segment.category] += until_ns - segment.start_ns
        return {category: amount for category, amount in sorted(totals.items()) if amount}

    def wall_end_ns(self, now_ns: int) -> int:
        """Return where the wall clock of this job ends, seen at ``now_ns``."""
        if self.ended_ns is not None:
            return self.ended_ns
        return max([now_ns, *(segment.start_ns for segment in self.segments[-1:])])

    def wall_ns(self, now_ns: int) -> int:
        """Return the job's wall clock so far."""
        return self.wall_end_ns(now_ns) - self.started_ns

    def _spans(self, end_ns: int) -> list[tuple[Segment, int]]:
        starts = [segment.start_ns for segment in self.segments[1:]]
        return list(zip(self.segments, [*starts, end_ns], strict=True)) if self.segments else []

    def _horizon_ns(self) -> int:
        return self.segments[0].start_ns if self.segments else self.started_ns

    def _carve(self, start_ns: int, end_ns: int, category: Category, incident: str) -> None:
        """Relabel a closed piece of the timeline."""
        kept: list[Segment] = []
        for segment, until_ns in self._spans(max(end_ns, self.segments[-1].start_ns)):
            if until_ns <= start_ns or segment.start_ns >= end_ns:
                kept.append(segment)
                continue
            if segment.start_ns < start_ns:
                kept.append(Segment(segment.start_ns, segment.category, segment.incident))
            kept.append(Segment(max(segment.start_ns, start_ns), category, incident))
            if until_ns > end_ns:
                kept.append(Segment(end_ns, segment.category, segment.incident))
        self.segments = kept

    def _fold(self, now_ns: int) -> None:
        """Fold what late evidence can no longer reach."""
        limit_ns = now_ns - RESTATEMENT_NS
        while len(self.segments) > 1 and self.segments[1].start_ns <= limit_ns:
            first = self.segments.pop(0)
            length_ns = self.segments[0].start_ns - first.start_ns
            self._add_folded(first.category, first.incident, length_ns)

    def _add_folded(self, category: Category, incident: str, amount_ns: int) -> None:
        owners = self.folded.setdefault(category, {})
        owners[incident] = owners.get(incident, 0) + amount_ns
