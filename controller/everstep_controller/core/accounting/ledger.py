"""Ledger of a job: every nanosecond in exactly one category, and the ETTR that follows from it.

The timeline (timeline.py) is of segments, each in one category, that reach from one to the next, so
categories always sum to the wall clock and none is ever a residual. The categories and their rules
are in categories.py. The sentences of ``DEFINITIONS`` go out with the numbers.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low
from types import MappingProxyType

from everstep_controller.core.accounting.categories import (
    PLANNED_WORK,
    Category,
    Group,
    category_of,
    loss_of,
)
from everstep_controller.core.accounting.committed_steps import (
    STEPS_KEPT,
    CommittedStep,
    CommittedSteps,
    StepBlock,
    add_step,
    spent_by,
    take_blocks_after,
)
from everstep_controller.core.accounting.reliability import FailureBudget, failure_budget
from everstep_controller.core.accounting.slow_time import SlowTime
from everstep_controller.core.accounting.timeline import Segment, Timeline

# The reference step time is the median of so many steps of one generation …
REFERENCE_STEPS = 101

# … and is trusted from this many on; before that every step is as long as it should be.
REFERENCE_STEPS_MIN = 5

# Steps after a restart whose excess is warm-up, not slowness.
WARMUP_STEPS = 3

_NO_PAUSE: Mapping[Category, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GuessedStart:
    """The earliest that a first step may have begun, and what its time was booked as before it."""

    from_ns: int
    category: Category
    incident: str


@dataclass(slots=True)
class Ledger(Timeline):
    """The timeline of one job, and the steps that are on it."""

    steps: CommittedSteps = field(default_factory=CommittedSteps)
    # Those before these, oldest first.
    older: list[StepBlock] = field(default_factory=list)
    step_count: int = 0
    reference_ns: list[int] = field(default_factory=list)
    warmup_left: int = 0
    # Of the newest incident; empty for a fault that befell planned work.
    cause: str = ""
    # Of a first step of which nobody has said when it began; None where that is known.
    guess: GuessedStart | None = None
    # What steps that take longer are put down to, and when the first of this run of them began.
    slow: SlowTime = field(default_factory=SlowTime)
    run_ns: int = 0
    # When the controller was away last: from when until when.
    away_ns: tuple[int, int] = (0, 0)

    def begin_steps(self, at_ns: int, *, warmup: bool, guessed: bool = False) -> None:
        """Start a run of steps: what follows is in flight until a step is committed.

        ``guessed``: the first one began at ``at_ns`` at the earliest, and nobody has said when. It
        is taken to have lasted as long as the second one, as soon as there is one.
        """
        self.guess = None
        if guessed:
            before = self.segments[-1]
            self.guess = GuessedStart(at_ns, before.category, before.incident)
        self.enter(at_ns, Category.IN_FLIGHT)
        self.warmup_left = WARMUP_STEPS if warmup else 0
        self.reference_ns, self.slow, self.run_ns = [], SlowTime(), at_ns

    def note_absence(self, from_ns: int, until_ns: int) -> None:
        """The controller was away: what nobody tells of this time is known to nobody."""
        self.away_ns = (from_ns, until_ns)

    def attribute(self, slow: SlowTime, from_ns: int = 0) -> None:
        """Put steps from a time on that take longer down to something, and those to come.

        Where a node became slow then, the reference is that of the steps before: it does not follow
        a node that stays slow. Steps of earlier runs, and those of which only sums are kept, stay.
        """
        since_ns = max(from_ns, self.run_ns)
        of_run = [one for one in self.steps[-STEPS_KEPT:] if one.start_ns >= self.run_ns]
        again = [one for one in of_run if one.start_ns >= since_ns]
        if slow.category is Category.SLOW_NODE:
            before = [one.productive_ns for one in of_run if one.start_ns < since_ns]
            known_ns = self.slow.reference_ns
            if len(before) >= REFERENCE_STEPS_MIN and not known_ns:
                self.reference_ns = before[-REFERENCE_STEPS:]
                known_ns = median_low(self.reference_ns)
            slow = replace(slow, reference_ns=known_ns)
        self.slow = slow
        if again:
            self.steps.replace_newest([self._put_down(one) for one in again])

    def _put_down(self, record: CommittedStep) -> CommittedStep:
        """Return a step whose time is measured again, by what it is put down to now."""
        before, work_ns = record.excess_category, record.work_ns
        whole = self.slow.category is Category.SLOW_NODE
        if before.group is not Group.SLOW or not (whole or before is Category.SLOW):
            return record  # it warmed up; or it is put down to something already
        reference_ns = self.slow.reference_ns or record.productive_ns
        productive_ns = min(reference_ns, record.productive_ns)
        category = self.slow.category_of(work_ns, reference_ns)
        end_ns = record.start_ns + work_ns
        if category is not before and record.excess_ns:
            late = Segment(record.start_ns + record.productive_ns, category)
            self._restate(before, late, end_ns)
        if productive_ns < record.productive_ns:
            right = Segment(record.start_ns + productive_ns, category)
            self._restate(Category.PRODUCTIVE, right, record.start_ns + record.productive_ns)
        return replace(record, productive_ns=productive_ns, excess_category=category)

    def commit_step(
        self, step: int, end_ns: int, stall_ns: int, pauses: Mapping[Category, int] = _NO_PAUSE
    ) -> None:
        """Count a step that ended at ``end_ns`` after standing still for its snapshot.

        ``pauses`` is what its ranks declared to be no step: nanoseconds by category. A step that
        was counted before was made again, and so will be those after it: they are lost.
        """
        if self.steps and step <= self.steps[-1].step:
            self.roll_back(step - 1)
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
        paused = tuple(_fitting(pauses, end_ns - start_ns - stall_ns)) if pauses else ()
        work_ns = end_ns - start_ns - stall_ns - sum(ns for _, ns in paused)
        if self._is_second(start_ns):
            index += self._date_first(work_ns)
        productive_ns, excess = self._split(work_ns)
        record = CommittedStep(step, start_ns, end_ns, productive_ns, excess, stall_ns, paused)
        self._replace_start(index, record, "" if excess.group is Group.SLOW else incident)
        newest_before = self._newest_step()
        if len(self.steps) == STEPS_KEPT:
            add_step(self.older, self.steps[0])
        self.steps.append(record)
        # Of a script that prints one step in ten, each that is seen stands for ten.
        self.step_count += 1 if newest_before is None else step - newest_before
        if len(self.reference_ns) == REFERENCE_STEPS_MIN:
            self._measure_again()
        if self.warmup_left == 0 and newest:
            # The incident is over: what comes from here on is not its cost.
            self.incident = ""
            self.segments[-1].incident = ""

    def roll_back(self, last_good: int) -> int:
        """Turn every committed step after ``last_good`` into lost.*; return how many."""
        category, newest_before = loss_of(self.cause), self._newest_step()
        lost = self.steps.take_after(last_good)
        late = [record for record in lost if record.start_ns >= self._horizon_ns()]
        for record in lost[: len(lost) - len(late)]:
            self._move_folded(spent_by(record), category)
        for start_ns, end_ns in _runs(late):
            self._carve(start_ns, end_ns, category, self.incident)
        self._roll_back_older(last_good, lost[:1], category)
        newest, count = self._newest_step(), self.step_count
        if newest_before is not None and newest is not None:
            count = min(count, newest_before - newest)
        self.step_count -= count
        return count

    def _newest_step(self) -> int | None:
        """Return the newest step that counts."""
        if self.steps:
            return self.steps[-1].step
        return self.older[-1].last_step if self.older else None

    def _roll_back_older(
        self, last_good: int, follows: Sequence[CommittedStep], into: Category
    ) -> None:
        """Do the same to steps of which only sums are kept, which the first of these follows."""
        blocks = list(take_blocks_after(self.older, last_good))
        for step in follows if blocks else ():
            self._fold_before(step.start_ns)
        for block in blocks:
            self._move_folded(block.spent.items(), into)

    def record_fault(self, onset_ns: int, alarm_ns: int, incident: str, cause: str) -> None:
        """A fault began at ``onset_ns`` and was learned at ``alarm_ns``; or planned work began."""
        self.cause = cause
        open_segment = self.segments[-1]
        # Never behind a committed step: what was finished before the report counts.
        onset_ns = max(onset_ns, open_segment.start_ns)
        begun_ns = open_segment.start_ns
        if was_in_flight := open_segment.category is Category.IN_FLIGHT:
            open_segment.category = Category.LOST_IN_FLIGHT
            open_segment.incident = incident
        self.enter(onset_ns, category_of(Category.DETECT, cause), incident)
        if was_in_flight:
            self._forget_untold(begun_ns, onset_ns)
        if cause not in PLANNED_WORK:
            self.enter(max(alarm_ns, onset_ns), category_of(Category.DIAGNOSE, cause), incident)

    def withdraw_fault(self, incident: str, now_ns: int) -> None:
        """Take an incident back that stopped nothing: steps were in flight from its onset on.

        What is too old to be restated stays as it was booked.
        """
        self.incident = self.cause = ""
        first = next((one for one in self.segments if one.incident == incident), None)
        if first is None or self.segments[-1].incident != incident:
            self.begin_steps(now_ns, warmup=False)
            return
        del self.segments[self.segments.index(first) + 1 :]
        first.category, first.incident = Category.IN_FLIGHT, ""

    def record_interruption(self, onset_ns: int, alarm_ns: int, incident: str) -> None:
        """A fault befell what was planned, while nothing ran: from its onset on the time is its."""
        begun_ns = self.segments[-1].start_ns
        for segment in reversed(self.segments):
            if segment.category.group is not Group.PLANNED:
                break
            begun_ns = segment.start_ns
        self.cause = ""
        self.enter(max(onset_ns, begun_ns), Category.DETECT, incident)
        self.enter(max(alarm_ns, onset_ns, begun_ns), Category.DIAGNOSE, incident)

    def close(self, at_ns: int) -> None:
        """Close the timeline."""
        if self.ended_ns is None:
            self.ended_ns = max(at_ns, self.segments[-1].start_ns)
            # No step began after the last one: the processes were closing down, and after that its
            # last state may have been on its way to storage.
            index = self._in_flight_index()
            if index is not None and self.segments[index].category is Category.IN_FLIGHT:
                closing, followers = self.segments[index], self.segments[index + 1 :]
                closing.category = Category.GAP
                until_ns = followers[0].start_ns if followers else self.ended_ns
                self._forget_untold(closing.start_ns, until_ns)

    def _forget_untold(self, begun_ns: int, until_ns: int) -> None:
        """Take of a step that never ended what was longer than one, while nobody was there."""
        known_ns = self.slow.reference_ns or (median_low(self.reference_ns or [0]))
        from_ns = max(begun_ns + known_ns, self.away_ns[0])
        until_ns = min(until_ns, self.away_ns[1])
        if from_ns < until_ns:
            self._carve(from_ns, until_ns, Category.UNKNOWN, "")

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
                # What they took beyond theirs, as on a node that was slow, is no usual step.
                reference = median_low([one.productive_ns for one in last])
            return min(work_ns, reference), self._warmup()
        if self.slow.reference_ns:
            reference = self.slow.reference_ns
        else:
            self.reference_ns.append(work_ns)
            del self.reference_ns[:-REFERENCE_STEPS]
        return min(work_ns, reference), self.slow.category_of(work_ns, reference)

    def _is_second(self, start_ns: int) -> bool:
        """Return whether a step follows at once a first one of which the start was guessed."""
        if self.guess is None or not self.steps:
            return False
        first = self.steps[-1]
        return (first.start_ns, first.end_ns) == (self.guess.from_ns, start_ns)

    def _date_first(self, usual_ns: int) -> int:
        """Have the first step begin so long before its end as the second one has lasted.

        Return by how many segments the timeline is longer after that.
        """
        guess, self.guess = self.guess, None
        first, length = self.steps[-1], len(self.segments)
        begun_ns = first.start_ns + first.work_ns - usual_ns
        if guess is None or begun_ns <= first.start_ns:
            return 0
        before = Segment(first.start_ns, guess.category, guess.incident, self.nodes)
        self._restate(Category.PRODUCTIVE, before, begun_ns)
        self.steps.replace_newest([replace(first, start_ns=begun_ns, productive_ns=usual_ns)])
        return len(self.segments) - length

    def _measure_again(self) -> None:
        """Measure the first steps of a generation, now that its reference is known, by that too."""
        reference_ns = median_low(self.reference_ns)
        again = []
        for record in self.steps[-len(self.reference_ns) :]:
            over_ns = record.productive_ns - reference_ns
            if over_ns > 0:
                from_ns = record.start_ns + reference_ns
                slow = Segment(from_ns, Category.SLOW, "")
                self._restate(Category.PRODUCTIVE, slow, from_ns + over_ns)
                record = replace(record, productive_ns=reference_ns)
            again.append(record)
        self.steps.replace_newest(again)

    def _restate(self, booked: Category, right: Segment, until_ns: int) -> None:
        """Give time of a committed step that was booked under another category its right one."""
        if right.start_ns >= self._horizon_ns():
            self._carve(right.start_ns, until_ns, right.category, right.incident)
        else:
            target = (right.category, right.incident)
            self._move((booked, ""), target, until_ns - right.start_ns)

    def _warmup(self) -> Category:
        """Return where the excess of the first steps goes."""
        return category_of(Category.WARMUP, self.cause if self.incident else None)

    def _replace_start(self, index: int, record: CommittedStep, incident: str) -> None:
        """Cut a committed step off the front of the segment that it was in flight in."""
        rest = self.segments[index]
        pieces = [
            (Category.PRODUCTIVE, "", record.productive_ns),
            (record.excess_category, incident, record.excess_ns),
            (Category.STALL, "", record.stall_ns),
            *((category, "", paused_ns) for category, paused_ns in record.pauses),
        ]
        cursor, cut = record.start_ns, []
        for category, owner, length in pieces:
            if length:
                cut.append(Segment(cursor, category, owner, rest.nodes))
                cursor += length
        rest.start_ns = record.end_ns
        followers = self.segments[index + 1 :]
        used_up = bool(followers) and followers[0].start_ns <= rest.start_ns
        self.segments[index:] = [*cut, *([] if used_up else [rest]), *followers]
        self._fold(record.end_ns)

    def _move_folded(self, spent: Iterable[tuple[Category, int]], into: Category) -> None:
        """Relabel time of steps whose segments are folded already."""
        for category, amount in spent:
            owners = self.folded.get(category, {})
            for owner in list(owners):
                moved = min(amount, owners[owner])
                amount -= moved
                self._move((category, owner), (into, self.incident), moved)


def _fitting(pauses: Mapping[Category, int], most_ns: int) -> Iterator[tuple[Category, int]]:
    """Yield pauses, no more of them than there is time."""
    for category, told_ns in sorted(pauses.items()):
        if paused_ns := min(told_ns, most_ns):
            most_ns -= paused_ns
            yield category, paused_ns


def _runs(steps: Iterable[CommittedStep]) -> Iterator[tuple[int, int]]:
    """Yield from when to when there were steps without a pause between them."""
    start_ns = end_ns = 0
    for step in steps:
        if step.start_ns != end_ns:
            if end_ns:
                yield start_ns, end_ns
            start_ns = step.start_ns
        end_ns = step.end_ns
    if end_ns:
        yield start_ns, end_ns


# The ratio that budgets of failures are told for: what Baidu states of Baige 4.0.
TARGET = 0.995
# What costs time of a job that no failure befalls.
_STEADY = (Category.STALL, Category.PERSIST)

DEFINITIONS = (
    "ETTR_time = (productive + slow.*) / wall: the share of time in which steps were made that "
    "count.",
    "ETTR_work = productive / wall: what a step took beyond its reference time is a loss as well.",
    "ETTR_devices = (productive + slow.*) in device-seconds / those of all nodes that it may have. "
    "A device is a rank's: one rank that drives several counts once.",
    "A failure is an incident that nobody planned: restarts and drains that an operator or its "
    "user ordered, and growth, are none. To hold 99.5 %, each may cost (wall x 0.5 % - "
    "ckpt.stall.*) / failures.",
    "Evaluation, pauses and planned work count as time in which nothing was trained: whoever wants "
    "them left out takes eval, user_pause and planned off the wall clock.",
)


@dataclass(frozen=True, slots=True)
class Effectiveness:
    """ETTR of a job: the share of its wall clock that was training, and its failures."""

    wall_ns: int
    ettr_time: float
    ettr_work: float
    failures: int
    # What failures may cost to hold 99.5 %.
    budget: FailureBudget


def effectiveness(ledger: Ledger, failures: int, now_ns: int) -> Effectiveness:
    """Return the ratios of a job with so many failures, up to ``now_ns``."""
    wall_ns, totals = ledger.wall_ns(now_ns), ledger.totals(now_ns)
    return Effectiveness(
        wall_ns,
        ettr_time(totals, wall_ns),
        ettr_work(totals, wall_ns),
        failures,
        failure_budget(
            TARGET,
            wall_ns / 1e9,
            sum(totals.get(one, 0) for one in _STEADY) / 1e9,
            sum(ns for one, ns in totals.items() if one.group is Group.INCIDENT) / 1e9,
            failures,
        ),
    )


def ettr_time(totals: Mapping[Category, int], wall_ns: int) -> float:
    """Return (productive + slow.*) / wall: time in steps that count, however long they took.

    Comparable with what Llama 3, ByteRobust and Google publish. 0 before any time has passed.
    """
    return _share(totals, wall_ns, (Group.PRODUCTIVE, Group.SLOW))


def ettr_work(totals: Mapping[Category, int], wall_ns: int) -> float:
    """Return productive / wall: what a step took beyond its reference time is a loss as well.

    The reference is the median step of the newest hundred of its generation. 0 before any time has
    passed.
    """
    return _share(totals, wall_ns, (Group.PRODUCTIVE,))


def device_totals(
    ledger: Ledger, nodes_max: int, devices_per_node: int, now_ns: int
) -> dict[Category, int]:
    """Return nanoseconds of devices by category, with those of which it had none: degraded.

    They sum to the wall clock of the devices of as many nodes as the job may have, or has had, all
    the time: a job that goes on with 3 of 4 nodes is productive for three quarters.
    """
    node_ns = ledger.node_totals(now_ns)
    absent_ns = ledger.wall_ns(now_ns) * nodes_max - sum(node_ns.values())
    if absent_ns > 0:
        node_ns[Category.DEGRADED] = absent_ns
    return {category: ns * devices_per_node for category, ns in node_ns.items()}


def ettr_devices(totals: Mapping[Category, int]) -> float:
    """Return (productive + slow.*) / all of a job's totals by devices; 0 before any time."""
    return _share(totals, sum(totals.values()), (Group.PRODUCTIVE, Group.SLOW))


def failure_count(causes: Iterable[str]) -> int:
    """Return how many incidents with these causes are failures: those that nobody planned."""
    return sum(cause not in PLANNED_WORK for cause in causes)


def _share(totals: Mapping[Category, int], wall_ns: int, groups: tuple[Group, ...]) -> float:
    counted = sum(amount for category, amount in totals.items() if category.group in groups)
    return counted / wall_ns if wall_ns else 0.0
