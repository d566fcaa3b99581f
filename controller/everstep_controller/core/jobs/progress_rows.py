"""Progress rows: the steps that all members of each job completed, journaled once a second."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from everstep_common.reports import PauseKind, StepPause
from everstep_controller.core.events import JobProgressed
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.state import State

# So often the steps of all jobs are journaled, as one row (journal/progress_columns.py).
ROW_NS = 1_000_000_000
# Agents' clocks agree to no more than some of these.
_UNIT_NS = 1_000
# A member that says nothing must not keep the others' records unacknowledged for ever …
_RECORDS_MAX = 200
# … nor their steps in memory.
_STEPS_MAX = 10_000
_EVERY_STEP = 1 << 63
_NO_STEP = -1
# Generation and step.
_NOTHING_WRITTEN = (-1, -1)


class Reporters(NamedTuple):
    """The generation of a job that counts now, and who must report a step for it to be complete.

    ``silent`` says of a member that it tells nothing now: it keeps nobody waiting. A named tuple,
    for one is made for each report of each node.
    """

    generation: int
    members: Sequence[str]
    # Not yet running: the first step is worth a row at once.
    running: bool
    silent: Callable[[str], bool] = lambda _: False


def reporters(state: State, key: str) -> Reporters | None:
    """Return who must report the steps of a job now; None for no job."""
    job = state.job(key)
    if job is None:
        return None
    generation = job.generation
    # One that is away tells nothing now, and one that has finished nothing more.
    return Reporters(
        generation.number,
        generation.members,
        job.state is JobState.RUNNING,
        lambda name: state.nodes[name].missed or name in generation.finished,
    )


@dataclass(frozen=True, slots=True)
class ReportedSteps:
    """Report of one node: consecutive steps, on the controller's timeline."""

    job: str
    generation: int
    first_step: int
    end_ns: tuple[int, ...]
    stall_ns: tuple[int, ...]
    snapshots_skipped: int
    origin: Origin
    # Seen in the output of one rank, which speaks for the ranks of all nodes.
    of_job: bool = False
    # What its ranks declared to be no step.
    pauses: tuple[StepPause, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """A row to journal, or, with no steps in it, records that say nothing new and need no row.

    ``origins`` are the records that are acknowledged with it. They are no part of the event: a step
    that is told again is known by its job, generation and number.
    """

    event: JobProgressed
    origins: Sequence[Origin] = ()

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to journal."""
        return not self.event.end_ns


@dataclass(slots=True)
class _Step:
    end_ns: int = 0
    stall_ns: int = 0
    reported: set[str] = field(default_factory=set)
    of_job: bool = False
    # Place of a member that had not reported it when that was asked last; none before it had to.
    missing: int = 0
    # What was declared to be no step, the most of any member; None of most steps.
    paused: dict[PauseKind, int] | None = None

    def add(self, node: str, end_ns: int, stall_ns: int) -> None:
        """Take a member's word of it: the last one counts, and the longest stall."""
        if end_ns > self.end_ns:
            self.end_ns = end_ns
        if stall_ns > self.stall_ns:
            self.stall_ns = stall_ns
        self.reported.add(node)

    def add_pause(self, kind: PauseKind, lasted_ns: int) -> None:
        """Take a member's word of what was no step: the longest counts."""
        known = self.paused or {}
        self.paused = {**known, kind: max(lasted_ns, known.get(kind, 0))}

    def is_whole(self, who: Reporters) -> bool:
        """Return whether nobody has to be waited for.

        Asked at each record of thousands of members, so it begins at whom it found missing last.
        """
        if self.of_job or self._is_told_by_all(who.members):
            return True
        # A member that was away when it was passed over may be back: so search again from the top.
        for begin in (self.missing, 0) if self.missing else (0,):
            for place, name in enumerate(islice(who.members, begin, None), start=begin):
                if name not in self.reported and not who.silent(name):
                    self.missing = place
                    return False
        return True

    def _is_told_by_all(self, members: Sequence[str]) -> bool:
        return len(self.reported) >= len(members) and self.reported.issuperset(members)


@dataclass(slots=True)
class _Pending:
    """Reports on one generation that are not in a row yet."""

    generation: int
    steps: dict[int, _Step] = field(default_factory=dict)
    # By node, its records with the last step of each, in their order.
    records: dict[str, list[tuple[int, Origin]]] = field(default_factory=dict)
    record_count: int = 0
    # The newest step that any of them tells of.
    newest: int = _NO_STEP
    skipped: int = 0

    def add(self, last: int, origin: Origin) -> None:
        """Hold a record until a row acknowledges it."""
        held = self.records.get(origin.node)
        if held is None:
            held = self.records[origin.node] = []
        held.append((last, origin))
        self.record_count += 1
        if last > self.newest:
            self.newest = last

    def add_pauses(self, pauses: Iterable[StepPause]) -> None:
        """Take a member's word of what was no step within steps that are not in a row yet."""
        for pause in pauses:
            if (step := self.steps.get(pause.step)) is not None:
                step.add_pause(pause.kind, pause.lasted_ns)

    def take_records(self, node: str, through: int) -> list[Origin]:
        """Return, once, a node's records of no step after ``through``."""
        held = self.records.get(node, [])
        if through >= self.newest:
            self.record_count -= len(held)
            self.records.pop(node, None)
            return [origin for _, origin in held]
        left = [one for one in held if one[0] > through]
        taken = [origin for last, origin in held if last <= through]
        self.record_count -= len(taken)
        if left:
            self.records[node] = left
        else:
            self.records.pop(node, None)
        return taken


class ProgressRows:
    """Collector of all jobs' steps. A row comes out when it is due, or when order demands it."""

    def __init__(
        self,
        reporters_of: Callable[[str], Reporters | None],
        recoverable: Callable[[str], int | None] = lambda _: None,
    ) -> None:
        self._reporters = reporters_of
        self._recoverable = recoverable
        self._pending: dict[str, _Pending] = {}
        # By node, the jobs that hold records of it.
        self._jobs_of: dict[str, set[str]] = {}
        self._ticked_ns = 0
        # Newest step that is in a row, by job, of the generation beside it.
        self._written: dict[str, tuple[int, int]] = {}

    def add(self, steps: ReportedSteps) -> list[ProgressRow]:
        """Take a report; return the rows that are due at once."""
        rows: list[ProgressRow] = []
        pending, members = self._pending.get(steps.job), self._reporters(steps.job)
        if pending is not None and pending.generation != steps.generation:
            if members is not None and members.generation == pending.generation:
                return [_row_alone(steps)]
            rows += self.flush(steps.job)
            pending = None
        if pending is None:
            pending = self._pending[steps.job] = _Pending(steps.generation)
        self._merge(pending, steps)
        if members is None or members.generation != steps.generation or not members.running:
            rows += self._due(steps.job, members)
        return rows

    def tick(self, now_ns: int) -> list[ProgressRow]:
        """Return the rows of all jobs, when a second is over since the last time."""
        rows: list[ProgressRow] = []
        if now_ns - self._ticked_ns < ROW_NS:
            return rows
        self._ticked_ns = now_ns
        for job in list(self._pending):
            if job in self._pending:
                rows += self._due(job, None if self._silent(job) else self._reporters(job))
        return rows

    def flush(self, job: str, nodes: Iterable[str] = ()) -> list[ProgressRow]:
        """Return the steps of a job that all members have reported, and all records of ``nodes``.

        A step that only some have reported stays: if the others' ranks die within it, it was never
        made. So it must not be told as the last one before their deaths.
        """
        pending = self._pending.get(job)
        if pending is None:
            return []
        through = self._through(pending, self._reporters(job))
        return list(self._rows(job, pending, through, nodes))

    def flush_node(self, node: str) -> list[ProgressRow]:
        """Return what must be journaled before any other record of the node may be."""
        waiting = self._jobs_of.get(node)
        return [row for job in sorted(waiting or ()) for row in self.flush(job, (node,))]

    def flush_all(self) -> list[ProgressRow]:
        """Return what all members have reported; agents tell the rest again."""
        return [row for job in list(self._pending) for row in self.flush(job)]

    def not_written(self, event: JobProgressed) -> None:
        """Take the steps of a row again when they come again: it could not be journaled."""
        generation, newest = self._written.get(event.job, (-1, -1))
        if generation == event.generation:
            self._written[event.job] = (generation, min(newest, event.first_step - 1))

    # ---------------------------------------------------------------------------------------------

    def _merge(self, pending: _Pending, steps: ReportedSteps) -> None:
        generation, newest = self._written.get(steps.job, _NOTHING_WRITTEN)
        floor = newest if generation == steps.generation else -1
        node = steps.origin.node
        number = steps.first_step - 1
        for end_ns, stall_ns in zip(steps.end_ns, steps.stall_ns, strict=False):
            number += 1
            if number <= floor:
                continue
            step = pending.steps.get(number)
            if step is None:
                step = pending.steps[number] = _Step()
            step.add(node, end_ns, stall_ns)
            if steps.of_job:
                step.of_job = True
        pending.add_pauses(steps.pauses)
        pending.add(steps.first_step + len(steps.end_ns) - 1, steps.origin)
        jobs = self._jobs_of.get(node)
        if jobs is None:
            jobs = self._jobs_of[node] = set()
        jobs.add(steps.job)
        if steps.snapshots_skipped > pending.skipped:
            pending.skipped = steps.snapshots_skipped

    def _due(self, job: str, members: Reporters | None) -> list[ProgressRow]:
        """Return the steps that all members have; all of them when nobody knows the members.

        Rows that share a node go together: its records must be journaled in their order.
        """
        pending = self._pending[job]
        through = self._through(pending, members)
        if through == _NO_STEP:
            return []
        return self._after_older(job, list(self._rows(job, pending, through)))

    def _silent(self, job: str) -> bool:
        pending = self._pending[job]
        return (
            pending.record_count > _RECORDS_MAX * len(pending.records)
            or len(pending.steps) > _STEPS_MAX
        )

    def _through(self, pending: _Pending, members: Reporters | None) -> int:
        """Return up to which step nobody has to be waited for."""
        known = members is not None and members.generation == pending.generation
        if members is None or not known or not pending.steps:
            return _EVERY_STEP
        newest_first = sorted(pending.steps, reverse=True)
        return next((n for n in newest_first if pending.steps[n].is_whole(members)), _NO_STEP)

    def _after_older(self, job: str, rows: list[ProgressRow]) -> list[ProgressRow]:
        """Return rows after those of other jobs that hold older records of the same nodes."""
        origins = [origin for row in rows for origin in row.origins]
        newest = {one.node: one.sequence for one in origins if one.node in self._jobs_of}
        older = sorted({other for node in newest for other in self._jobs_of[node]} - {job})
        before = [
            other
            for other in older
            if any(self._has_older(other, node, newest[node]) for node in newest)
        ]
        return [*(row for other in before for row in self.flush(other, newest)), *rows]

    def _has_older(self, job: str, node: str, sequence: int) -> bool:
        held = self._pending[job].records.get(node, ())
        return any(origin.sequence < sequence for _, origin in held)

    def _rows(
        self, job: str, pending: _Pending, through: int, nodes: Iterable[str] = ()
    ) -> Iterator[ProgressRow]:
        """Yield rows of consecutive steps up to ``through``; the last one has the origins.

        Those of ``nodes`` are among them also where their steps have to wait.
        """
        numbers = sorted(n for n in pending.steps if n <= through)
        origins = self._take_records(job, pending, through, nodes)
        runs = list(_consecutive(numbers)) or [[]]
        for index, run in enumerate(runs):
            steps = [pending.steps.pop(number) for number in run]
            event = JobProgressed(
                job=job,
                generation=pending.generation,
                first_step=run[0] if run else 0,
                end_ns=tuple(step.end_ns // _UNIT_NS * _UNIT_NS for step in steps),
                stall_ns=tuple(step.stall_ns // _UNIT_NS * _UNIT_NS for step in steps),
                recoverable_step=self._recoverable(job),
                snapshots_skipped=pending.skipped,
                pauses=tuple(_pauses(zip(run, steps, strict=True))),
            )
            yield ProgressRow(event, origins if index == len(runs) - 1 else ())
        if numbers:
            self._written[job] = (pending.generation, numbers[-1])
        if not pending.steps and not pending.records:
            self._pending.pop(job, None)

    def _take_records(
        self, job: str, pending: _Pending, through: int, nodes: Iterable[str]
    ) -> list[Origin]:
        """Return the records of no step after ``through``, and all of ``nodes``."""
        flushed = [node for node in nodes if node in pending.records]
        taken = [origin for node in flushed for origin in pending.take_records(node, _EVERY_STEP)]
        others = list(pending.records) if through != _NO_STEP else []
        for node in others:
            taken += pending.take_records(node, through)
        for node in (*flushed, *others):
            if node not in pending.records:
                self._leave(node, job)
        return taken

    def _leave(self, node: str, job: str) -> None:
        """Note that a job holds no record of a node any more."""
        jobs = self._jobs_of[node]
        jobs.discard(job)
        if not jobs:
            del self._jobs_of[node]


def _pauses(steps: Iterable[tuple[int, _Step]]) -> Iterator[StepPause]:
    for number, step in steps:
        for kind, lasted_ns in (step.paused or {}).items():
            yield StepPause(number, kind, lasted_ns // _UNIT_NS * _UNIT_NS)


def _row_alone(steps: ReportedSteps) -> ProgressRow:
    """Return the row of steps of a generation that does not count: nobody is waited for."""
    event = JobProgressed(
        job=steps.job,
        generation=steps.generation,
        first_step=steps.first_step,
        end_ns=steps.end_ns,
        stall_ns=steps.stall_ns,
        snapshots_skipped=steps.snapshots_skipped,
        pauses=steps.pauses,
    )
    return ProgressRow(event, (steps.origin,))


def _consecutive(numbers: Sequence[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run
