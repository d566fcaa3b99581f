"""Progress flow: a generation's progress is sent at once, but at most five times a second."""

import asyncio
from collections.abc import Callable

from everstep_agent.jobs.job.context import Outlet
from everstep_agent.jobs.job.progress import ProgressCombiner
from everstep_agent.jobs.state.plan import NO_PLAN, Plan
from everstep_common.rank_messages import Paused, Progress
from everstep_common.reports import StepsCompleted
from everstep_proto.reports import record_of

INTERVAL_S = 0.2


class ProgressFlow:
    """The progress of a job's newest generation on this node."""

    def __init__(self, outlet: Outlet, on_first_step: Callable[[int], None]) -> None:
        """``on_first_step`` hears the generation when all ranks here have completed a step."""
        self._outlet = outlet
        self._on_first_step = on_first_step
        self._timer: asyncio.TimerHandle | None = None
        self._expect(NO_PLAN)

    def begin(self, plan: Plan) -> None:
        """Another generation begins; what is complete of the one before is sent."""
        self.flush()
        self._expect(plan)

    def _expect(self, plan: Plan) -> None:
        self._plan = plan
        self._combiner = ProgressCombiner(plan.processes)
        self._unsaved: dict[int, int] = {}
        # Whether progress was read from the output of one rank, and holds for the whole job.
        self._of_job = False
        self._first_step_told = False
        self._next_s = 0.0

    def last_step(self, generation: int, rank: int) -> int | None:
        """Return the newest step of a rank, if this is the flow of its generation."""
        return self._combiner.last(rank) if generation == self._plan.generation else None

    def add_step(self, rank: int, progress: Progress) -> None:
        """A rank completed a step."""
        self._of_job = False
        self._unsaved[rank] = progress.unsaved
        self._combiner.add(rank, progress)
        self._send_soon()

    def add_pause(self, rank: int, paused: Paused) -> None:
        """A rank begins what is no step, or goes on with steps."""
        self._combiner.add_pause(rank, paused)

    def end_pause(self, rank: int) -> None:
        """A rank tells no more when its pause ends."""
        self._combiner.end_pause(rank)

    def add_seen_step(self, progress: Progress) -> None:
        """The output of some rank says that the job has completed a step."""
        self._of_job = True
        for rank in self._plan.ranks:
            self._combiner.add(rank, progress)
        self._send_soon()

    def flush(self) -> None:
        """Send what is complete now."""
        if self._timer is not None:
            self._timer.cancel()
            self._send()

    def _send_soon(self) -> None:
        if not self._combiner.waiting or self._timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= self._next_s:
            self._send()
        else:
            self._timer = loop.call_at(self._next_s, self._send)

    def _send(self) -> None:
        self._timer = None
        self._next_s = asyncio.get_running_loop().time() + INTERVAL_S
        for run in self._combiner.take_runs():
            report = StepsCompleted(
                generation=self._plan.generation,
                first_step=run.first_step,
                end_boot_ns=run.end_boot_ns,
                stall_ns=run.stall_ns,
                # A step is missing in the vault when any rank did not save it.
                snapshots_skipped=max(self._unsaved.values(), default=0),
                of_job=self._of_job,
                pauses=run.pauses,
            )
            self._outlet.record(record_of(report, self._plan.job_id or self._plan.job))
            if not self._first_step_told:
                self._first_step_told = True
                self._on_first_step(self._plan.generation)
