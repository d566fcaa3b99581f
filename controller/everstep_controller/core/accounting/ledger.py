"""Ledger of a job: every nanosecond in exactly one category, by construction.

The categories and their rules are in categories.py.
"""

from dataclasses import dataclass, field
from statistics import median_low

from everstep_controller.core.accounting.categories import (
    PLANNED_WORK,
    Category,
    Group,
    category_of,
)
from everstep_controller.core.accounting.timeline import Segment, Timeline

# A rollback further back than this many steps is charged from the totals of those that are kept.
STEPS_KEPT = 4096

# The reference step time is the median of so many steps of one generation …
REFERENCE_STEPS = 101

# … and is trusted from this many on; before that every step is as long as it should be.
REFERENCE_STEPS_MIN = 5

# Steps after a restart whose excess is warm-up, not slowness.
WARMUP_STEPS = 3


@dataclass(slots=True)
class CommittedStep:
    """A step that counts, as long as no rollback takes it back."""

    step: int
    start_ns: int
    end_ns: int
    productive_ns: int
    excess_ns: int
    excess_category: Category
    stall_ns: int


@dataclass(slots=True)
class Ledger(Timeline):
    """The timeline of one job, and the steps that are on it."""

    steps: list[CommittedStep] = field(default_factory=list)
    step_count: int = 0
    reference_ns: list[int] = field(default_factory=list)
    warmup_left: int = 0
    # Where the excess of the first steps after the newest incident goes.
    warmup: Category = Category.WARMUP

    def begin_steps(self, at_ns: int, *, warmup: bool) -> None:
        """Start a run of steps: what follows is in flight until a step is committed."""
        self.enter(at_ns, Category.IN_FLIGHT)
        self.warmup_left = WARMUP_STEPS if warmup else 0
        self.reference_ns = []

    def commit_step(self, step: int, end_ns: int, stall_ns: int) -> None:
        """Count a step that ended at ``end_ns`` after standing still for its snapshot."""
        index = self._in_flight_index()
        if index is None:
            return
        start_ns = self.segments[index].start_ns
        incident = self.segments[index].incident
        newest = index + 1 == len(self.segments)
        if not newest:
            # Reported late: the fault ended whatever was in flight, this step too.
            end_ns = min(end_ns, self.segments[index + 1].start_ns)
        end_ns = max(end_ns, start_ns)
        stall_ns = min(stall_ns, end_ns - start_ns)
        work_ns = end_ns - start_ns - stall_ns
        productive_ns, excess = self._split(work_ns)
        record = CommittedStep(
            step, start_ns, end_ns, productive_ns, work_ns - productive_ns, excess, stall_ns
        )
        self._replace_start(index, record, "" if excess == Category.SLOW else incident)
        self.steps.append(record)
        del self.steps[:-STEPS_KEPT]
        self.step_count += 1
        if self.warmup_left == 0 and newest:
            # The incident is over: what comes from here on is not its cost.
            self.incident = ""
            self.segments[-1].incident = ""

    def roll_back(self, last_good: int) -> int:
        """Turn every committed step after ``last_good`` into lost.recompute; return how many."""
        lost = [record for record in self.steps if record.step > last_good]
        self.steps = [record for record in self.steps if record.step <= last_good]
        for record in lost:
            if record.start_ns >= self._horizon_ns():
                self._carve(record.start_ns, record.end_ns, Category.LOST_RECOMPUTE, self.incident)
            else:
                self._move_folded(record)
        self.step_count -= len(lost)
        return len(lost)

    def record_fault(self, onset_ns: int, alarm_ns: int, incident: str, cause: str) -> None:
        """A fault began at ``onset_ns`` and was learned at ``alarm_ns``; or planned work began."""
        self.warmup = category_of(Category.WARMUP, cause)
        open_segment = self.segments[-1]
        # Never behind a committed step: what was finished before the report counts.
        onset_ns = max(onset_ns, open_segment.start_ns)
        if open_segment.category is Category.IN_FLIGHT:
            open_segment.category = Category.LOST_IN_FLIGHT
            open_segment.incident = incident
        self.enter(onset_ns, category_of(Category.DETECT, cause), incident)
        if cause not in PLANNED_WORK:
            self.enter(max(alarm_ns, onset_ns), Category.DIAGNOSE, incident)

    def record_interruption(self, onset_ns: int, alarm_ns: int, incident: str) -> None:
        """A fault befell what was planned, while nothing ran: from its onset on the time is its."""
        begun_ns = self.segments[-1].start_ns
        for segment in reversed(self.segments):
            if segment.category.group is not Group.PLANNED:
                break
            begun_ns = segment.start_ns
        self.warmup = Category.WARMUP
        self.enter(max(onset_ns, begun_ns), Category.DETECT, incident)
        self.enter(max(alarm_ns, onset_ns, begun_ns), Category.DIAGNOSE, incident)

    def close(self, at_ns: int) -> None:
        """Close the timeline."""
        if self.ended_ns is None:
            self.ended_ns = max(at_ns, self.segments[-1].start_ns)
            if self.segments[-1].category == Category.IN_FLIGHT:
                # No step began after the last one: the processes were closing down.
                self.segments[-1].category = Category.GAP

    def _in_flight_index(self) -> int | None:
        """Return the newest segment in which a step was in flight."""
        for index in range(len(self.segments) - 1, -1, -1):
            if self.segments[index].category in (Category.IN_FLIGHT, Category.LOST_IN_FLIGHT):
                return index
        return None

    def _split(self, work_ns: int) -> tuple[int, Category]:
        """Return the productive part of a step and the category of its excess."""
        known = len(self.reference_ns) >= REFERENCE_STEPS_MIN
        reference = median_low(self.reference_ns) if known else work_ns
        if self.warmup_left > 0:
            self.warmup_left -= 1
            last = self.steps[-REFERENCE_STEPS:] if not known else []
            if last:
                reference = median_low([s.end_ns - s.start_ns - s.stall_ns for s in last])
            return min(work_ns, reference), self.warmup if self.incident else Category.INIT_WARMUP
        self.reference_ns.append(work_ns)
        del self.reference_ns[:-REFERENCE_STEPS]
        return min(work_ns, reference), Category.SLOW

    def _replace_start(self, index: int, record: CommittedStep, incident: str) -> None:
        """Cut a committed step off the front of the segment that it was in flight in."""
        rest = self.segments[index]
        pieces = [
            (Category.PRODUCTIVE, "", record.productive_ns),
            (record.excess_category, incident, record.excess_ns),
            (Category.STALL, "", record.stall_ns),
        ]
        cursor, cut = record.start_ns, []
        for category, owner, length in pieces:
            if length:
                cut.append(Segment(cursor, category, owner))
                cursor += length
        rest.start_ns = record.end_ns
        followers = self.segments[index + 1 :]
        used_up = bool(followers) and followers[0].start_ns <= rest.start_ns
        self.segments[index:] = [*cut, *([] if used_up else [rest]), *followers]
        self._fold(record.end_ns)

    def _move_folded(self, record: CommittedStep) -> None:
        """Relabel a step whose segments are folded already."""
        for category, amount in (
            (Category.PRODUCTIVE, record.productive_ns),
            (record.excess_category, record.excess_ns),
            (Category.STALL, record.stall_ns),
        ):
            owners = self.folded.get(category, {})
            for owner in owners:
                moved = min(amount, owners[owner])
                owners[owner] -= moved
                amount -= moved
                self._add_folded(Category.LOST_RECOMPUTE, self.incident, moved)
