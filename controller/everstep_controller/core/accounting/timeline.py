"""Timeline of a job: segments that follow one another, each in one category, on so many nodes.

A segment reaches to the start of the next; the last one is open. Late evidence carves a piece out
of a closed one for a while; older ones are folded into sums. What the sums were at the end of each
hour is marked, so that the time of an hour is known to the nanosecond whenever it is asked for.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from everstep_controller.core.accounting.categories import Category

# Late evidence may change the timeline this far back; older segments are folded into the totals.
RESTATEMENT_NS = 120_000_000_000
HOUR_NS = 3_600_000_000_000
# Marks of so many hours are kept: whoever writes them down may be away for a day, and a job whose
# steps are told after that has each of its hours still.
HOURS_KEPT = 26


@dataclass(slots=True)
class Segment:
    """Time from ``start_ns`` to the start of the next segment."""

    start_ns: int
    category: Category
    incident: str = ""
    # On so many nodes.
    nodes: int = 0


@dataclass(frozen=True, slots=True)
class HourMark:
    """Where a job's time had gone to, from its start to the end of an hour, or until now.

    ``node_ns`` weighs each nanosecond with the nodes that the job had then.
    """

    until_ns: int
    nodes: int
    totals: dict[Category, int]
    node_ns: dict[Category, int]

    @property
    def begin_ns(self) -> int:
        """Return when its hour began."""
        return (self.until_ns - 1) // HOUR_NS * HOUR_NS


# Nanoseconds by category, and within it by incident, "" for none.
Sums = dict[Category, dict[str, int]]


class _Piece(NamedTuple):
    """A segment, or what of it is in one hour."""

    segment: Segment
    from_ns: int
    until_ns: int


@dataclass(slots=True)
class Timeline:
    """Segments of a job, oldest first; all times are nanoseconds on the controller's timeline."""

    started_ns: int
    ended_ns: int | None = None
    segments: list[Segment] = field(default_factory=list)
    # What was folded; and the same in nanoseconds of nodes.
    folded: Sums = field(default_factory=dict)
    folded_node_ns: Sums = field(default_factory=dict)
    incident: str = ""
    # So many nodes it has now; 0: a version before 2026-12 has not said it.
    nodes: int = 0
    # The newest hours that are folded, oldest first.
    marks: list[HourMark] = field(default_factory=list)

    def weigh(self, nodes: int) -> None:
        """Have all its time be of so many nodes: of a new job, or of one of a version before."""
        self.nodes = nodes
        for segment in self.segments:
            segment.nodes = nodes
        self.folded_node_ns = {
            category: {owner: amount * nodes for owner, amount in owners.items()}
            for category, owners in self.folded.items()
        }

    def enter(self, at_ns: int, category: Category, incident: str | None = None) -> None:
        """Label everything from ``at_ns`` on. Backdating overwrites what was there."""
        if self.ended_ns is not None:
            return
        if incident is not None:
            self.incident = incident
        at_ns = max(at_ns, self._horizon_ns())
        while self.segments and self.segments[-1].start_ns >= at_ns:
            self.segments.pop()
        self.segments.append(Segment(at_ns, category, self.incident, self.nodes))
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
                start_ns, name = max(from_ns, segment.start_ns), names[segment.category]
                told.append(Segment(start_ns, name, segment.incident, segment.nodes))
        self.segments = told

    def totals(self, now_ns: int, incident: str | None = None) -> dict[Category, int]:
        """Return nanoseconds by category up to ``now_ns``; of one incident when one is named."""
        totals = _summed(self.folded, incident)
        for piece in self._pieces(now_ns):
            if incident is None or piece.segment.incident == incident:
                totals[piece.segment.category] += piece.until_ns - piece.from_ns
        return _told(totals)

    def node_totals(self, now_ns: int, incident: str | None = None) -> dict[Category, int]:
        """Return the same in nanoseconds of nodes."""
        totals = _summed(self.folded_node_ns, incident)
        for piece in self._pieces(now_ns):
            if incident is None or piece.segment.incident == incident:
                lasted_ns = piece.until_ns - piece.from_ns
                totals[piece.segment.category] += lasted_ns * piece.segment.nodes
        return _told(totals)

    def node_ns_by_incident(self, now_ns: int) -> dict[str, int]:
        """Return nanoseconds of nodes of each incident that has cost some, up to ``now_ns``."""
        spent: Counter[str] = Counter()
        for owners in self.folded_node_ns.values():
            spent.update(owners)
        for segment, from_ns, until_ns in self._pieces(now_ns):
            spent[segment.incident] += (until_ns - from_ns) * segment.nodes
        del spent[""]
        return dict(spent)

    def hours(self, now_ns: int, after_ns: int = 0) -> Iterator[HourMark]:
        """Yield the marks of the newest hours, the last of which is going on, or its last one.

        Those that are not folded yet may still change, and have another value the next time; of
        those that are, the ones until ``after_ns`` are left out.
        """
        yield from (mark for mark in self.marks if mark.until_ns > after_ns)
        totals, node_ns = _summed(self.folded), _summed(self.folded_node_ns)
        for segment, from_ns, until_ns in _by_hour(self._pieces(now_ns)):
            totals[segment.category] += until_ns - from_ns
            node_ns[segment.category] += (until_ns - from_ns) * segment.nodes
            if until_ns % HOUR_NS == 0 and until_ns > from_ns:
                yield HourMark(until_ns, segment.nodes, _told(totals), _told(node_ns))
        end_ns = self.wall_end_ns(now_ns)
        if end_ns % HOUR_NS and totals:
            yield HourMark(end_ns, self.nodes, _told(totals), _told(node_ns))

    def hourly_totals(self, now_ns: int) -> Iterator[dict[Category, int]]:
        """Yield where the time of each of the newest whole hours went, oldest first."""
        before: Mapping[Category, int] = {}
        until_ns = self.started_ns
        for mark in self.hours(now_ns):
            if mark.until_ns - until_ns == HOUR_NS:
                yield {one: ns - before.get(one, 0) for one, ns in mark.totals.items()}
            before, until_ns = mark.totals, mark.until_ns

    @property
    def folded_through_ns(self) -> int:
        """Return the end of the newest hour that does not change any more; 0 for none."""
        return self.marks[-1].until_ns if self.marks else 0

    def wall_end_ns(self, now_ns: int) -> int:
        """Return where the wall clock of this job ends, seen at ``now_ns``."""
        if self.ended_ns is not None:
            return self.ended_ns
        return max([now_ns, *(segment.start_ns for segment in self.segments[-1:])])

    def wall_ns(self, now_ns: int) -> int:
        """Return the job's wall clock so far."""
        return self.wall_end_ns(now_ns) - self.started_ns

    def forget_incident(self, incident: str) -> None:
        """Keep the time of an incident in its categories, and forget which incident it was of."""
        for sums in (self.folded, self.folded_node_ns):
            for category, owners in sums.items():
                if amount := owners.pop(incident, 0):
                    _add(sums, category, "", amount)

    def _pieces(self, now_ns: int) -> list[_Piece]:
        return self._spans(self.wall_end_ns(now_ns))

    def _spans(self, end_ns: int) -> list[_Piece]:
        starts = [segment.start_ns for segment in self.segments]
        ends = [*starts[1:], end_ns] if starts else []
        return list(map(_Piece, self.segments, starts, ends))

    def _horizon_ns(self) -> int:
        return self.segments[0].start_ns if self.segments else self.started_ns

    def _carve(self, start_ns: int, end_ns: int, category: Category, incident: str) -> None:
        """Relabel a closed piece of the timeline."""
        kept: list[Segment] = []
        last_ns = max(end_ns, self.segments[-1].start_ns, self.ended_ns or 0)
        for segment, _, until_ns in self._spans(last_ns):
            if until_ns <= start_ns or segment.start_ns >= end_ns:
                kept.append(segment)
                continue
            owner, nodes = segment.incident, segment.nodes
            if segment.start_ns < start_ns:
                kept.append(Segment(segment.start_ns, segment.category, owner, nodes))
            kept.append(Segment(max(segment.start_ns, start_ns), category, incident, nodes))
            if until_ns > end_ns:
                kept.append(Segment(end_ns, segment.category, owner, nodes))
        self.segments = kept

    def _fold(self, now_ns: int) -> None:
        """Fold what late evidence can no longer reach."""
        self._fold_before(now_ns - RESTATEMENT_NS)

    def _fold_before(self, limit_ns: int) -> None:
        while len(self.segments) > 1 and self.segments[1].start_ns <= limit_ns:
            first = self.segments.pop(0)
            whole = _Piece(first, first.start_ns, self.segments[0].start_ns)
            for _, from_ns, until_ns in _by_hour([whole]):
                self._fold_piece(first, until_ns - from_ns)
                if until_ns % HOUR_NS == 0 and until_ns > from_ns:
                    self._mark(until_ns, first.nodes)

    def _fold_piece(self, segment: Segment, lasted_ns: int) -> None:
        _add(self.folded, segment.category, segment.incident, lasted_ns)
        weighed_ns = lasted_ns * segment.nodes
        _add(self.folded_node_ns, segment.category, segment.incident, weighed_ns)

    def _mark(self, until_ns: int, nodes: int) -> None:
        totals, node_ns = _summed(self.folded), _summed(self.folded_node_ns)
        self.marks.append(HourMark(until_ns, nodes, _told(totals), _told(node_ns)))
        del self.marks[:-HOURS_KEPT]

    def _move(
        self, source: tuple[Category, str], target: tuple[Category, str], amount_ns: int
    ) -> None:
        """Give folded time another category and incident, with the nodes that its kind had."""
        (category, owner), (into, new_owner) = source, target
        have_ns = self.folded.setdefault(category, {}).setdefault(owner, 0)
        weighed = self.folded_node_ns.setdefault(category, {})
        share = weighed.get(owner, 0) * amount_ns // have_ns if have_ns else 0
        self.folded[category][owner] = have_ns - amount_ns
        weighed[owner] = weighed.get(owner, 0) - share
        _add(self.folded, into, new_owner, amount_ns)
        _add(self.folded_node_ns, into, new_owner, share)


def _by_hour(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """Yield pieces, those that go over the end of an hour in several."""
    for segment, start_ns, until_ns in pieces:
        from_ns = start_ns
        while from_ns // HOUR_NS < until_ns // HOUR_NS:
            end_ns = (from_ns // HOUR_NS + 1) * HOUR_NS
            yield _Piece(segment, from_ns, end_ns)
            from_ns = end_ns
        if from_ns < until_ns or until_ns == start_ns:
            yield _Piece(segment, from_ns, until_ns)


def _add(sums: Sums, category: Category, owner: str, amount: int) -> None:
    owners = sums.setdefault(category, {})
    owners[owner] = owners.get(owner, 0) + amount


def _summed(sums: Sums, incident: str | None = None) -> Counter[Category]:
    """Return sums by category; of one incident when one is named."""
    totals: Counter[Category] = Counter()
    for category, owners in sums.items():
        totals[category] += sum(owners.values()) if incident is None else owners.get(incident, 0)
    return totals


def _told(totals: Mapping[Category, int]) -> dict[Category, int]:
    return {category: amount for category, amount in sorted(totals.items()) if amount}
