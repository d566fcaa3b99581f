"""Progress rows: the steps that all members of a job completed, as one journaled row a second."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from everstep_controller.core.events import JobProgressed
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import Origin
from everstep_controller.core.model.state import State

# A journaled row stands for about this much training.
ROW_NS = 1_000_000_000
# A member that says nothing must not keep the others' records unacknowledged for ever …
_RECORDS_MAX = 200
# … nor their steps in memory.
_STEPS_MAX = 10_000
_EVERY_STEP = 1 << 63
_NO_STEP = -1


@dataclass(frozen=True, slots=True)
class Reporters:
    """The generation of a job that counts now, and who must report a step for it to be complete.

    ``nodes`` are those that can still tell: a node that is away keeps nobody waiting.
    """

    generation: int
    nodes: tuple[str, ...]
    # Not yet running: the first step is worth a row at once.
    running: bool


def reporters(state: State, key: str) -> Reporters | None:
    """Return who must report the steps of a job now; None for no job."""
    job = state.job(key)
    if job is None:
        return None
    # One that is away tells nothing now, and one that has finished nothing more.
    telling = (
        n
        for n in job.generation.members
        if not state.nodes[n].missed and n not in job.generation.finished
    )
    return Reporters(job.generation.number, tuple(telling), job.state is JobState.RUNNING)


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


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """A row to journal, or, with no steps in it, records that say nothing new and need no row."""

    event: JobProgressed

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


@dataclass(slots=True)
class _Pending:
    """Reports on one generation that are not in a row yet."""

    generation: int
    since_ns: int
    steps: dict[int, _Step] = field(default_factory=dict)
    origins: list[tuple[int, Origin]] = field(default_factory=list)
    skipped: int = 0


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
        # Newest step that is in a row, by job, of the generation beside it.
        self._written: dict[str, tuple[int, int]] = {}

    def add(self, steps: ReportedSteps, now_ns: int) -> list[ProgressRow]:
        """Take a report; return the rows that are due at once."""
        rows: list[ProgressRow] = []
        pending = self._pending.get(steps.job)
        if pending is not None and pending.generation != steps.generation:
            rows += self.flush(steps.job)
            pending = None
        if pending is None:
            pending = self._pending[steps.job] = _Pending(steps.generation, now_ns)
        self._merge(pending, steps)
        members = self._reporters(steps.job)
        if members is None or members.generation != steps.generation or not members.running:
            rows += self._due(steps.job, members)
        return rows

    def tick(self, now_ns: int) -> list[ProgressRow]:
        """Return the rows whose second is over."""
        rows: list[ProgressRow] = []
        for job in [j for j, p in self._pending.items() if now_ns - p.since_ns >= ROW_NS]:
            if job in self._pending:
                rows += self._due(job, None if self._silent(job) else self._reporters(job))
            if job in self._pending:
                self._pending[job].since_ns = now_ns
        return rows

    def flush(self, job: str, nodes: Collection[str] = ()) -> list[ProgressRow]:
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
        waiting = [
            job
            for job, pending in self._pending.items()
            if any(origin.node == node for _, origin in pending.origins)
        ]
        return [row for job in waiting for row in self.flush(job, (node,))]

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
        generation, newest = self._written.get(steps.job, (-1, -1))
        floor = newest if generation == steps.generation else -1
        for offset, (end_ns, stall_ns) in enumerate(zip(steps.end_ns, steps.stall_ns, strict=True)):
            number = steps.first_step + offset
            if number <= floor:
                continue
            step = pending.steps.setdefault(number, _Step())
            step.end_ns = max(step.end_ns, end_ns)
            step.stall_ns = max(step.stall_ns, stall_ns)
            step.reported.add(steps.origin.node)
            step.of_job = step.of_job or steps.of_job
        last = steps.first_step + len(steps.end_ns) - 1
        pending.origins.append((last, steps.origin))
        pending.skipped = max(pending.skipped, steps.snapshots_skipped)

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
        return len(pending.origins) > _RECORDS_MAX or len(pending.steps) > _STEPS_MAX

    def _through(self, pending: _Pending, members: Reporters | None) -> int:
        """Return up to which step nobody has to be waited for."""
        known = members is not None and members.generation == pending.generation
        if members is None or not known or not pending.steps:
            return _EVERY_STEP
        whole = [
            number
            for number, step in pending.steps.items()
            if step.of_job or step.reported.issuperset(members.nodes)
        ]
        return max(whole, default=_NO_STEP)

    def _after_older(self, job: str, rows: list[ProgressRow]) -> list[ProgressRow]:
        newest = {origin.node: origin.sequence for row in rows for origin in row.event.origins}
        older = [
            other
            for other, pending in self._pending.items()
            if other != job and any(o.sequence < newest.get(o.node, 0) for _, o in pending.origins)
        ]
        return [*(row for other in older for row in self.flush(other, newest)), *rows]

    def _rows(
        self, job: str, pending: _Pending, through: int, nodes: Collection[str] = ()
    ) -> Iterator[ProgressRow]:
        """Yield rows of consecutive steps up to ``through``; the last one has the origins.

        Those of ``nodes`` are among them also where their steps have to wait.
        """
        numbers = sorted(n for n in pending.steps if n <= through)
        taken = [(last, o) for last, o in pending.origins if last <= through or o.node in nodes]
        origins = tuple(origin for _, origin in taken)
        runs = list(_consecutive(numbers)) or [[]]
        for index, run in enumerate(runs):
            steps = [pending.steps.pop(number) for number in run]
            last_run = index == len(runs) - 1
            yield ProgressRow(
                JobProgressed(
                    job=job,
                    generation=pending.generation,
                    first_step=run[0] if run else 0,
                    end_ns=tuple(step.end_ns for step in steps),
                    stall_ns=tuple(step.stall_ns for step in steps),
                    recoverable_step=self._recoverable(job),
                    snapshots_skipped=pending.skipped,
                    origins=origins if last_run else (),
                )
            )
        if numbers:
            self._written[job] = (pending.generation, numbers[-1])
        pending.origins = [held for held in pending.origins if held not in taken]
        if not pending.steps and not pending.origins:
            self._pending.pop(job, None)


def _consecutive(numbers: Sequence[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run
