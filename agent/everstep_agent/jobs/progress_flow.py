"""Sends a generation's progress at once, but not more often than five times a second."""

import asyncio
from collections.abc import Callable

from everstep_agent.jobs.progress import ProgressCombiner
from everstep_agent.outlet import Outlet
from everstep_common.reports import StepsCompleted
from everstep_common.trainer_messages import Progress
from everstep_proto.generated import fleet_pb2
from everstep_proto.reports import record_of

INTERVAL_S = 0.2


class ProgressFlow:
    """The progress of one generation on this node."""

    def __init__(
        self,
        plan: fleet_pb2.StartGeneration,
        outlet: Outlet,
        settled: Callable[[int], None],
    ) -> None:
        """``settled`` is told the generation when all ranks here have completed a step."""
        self._job, self._generation = plan.job, plan.generation
        self._outlet = outlet
        self._settled: Callable[[int], None] | None = settled
        self._combiner = ProgressCombiner(plan.processes)
        self._ranks = range(plan.first_rank, plan.first_rank + plan.processes)
        self._skipped: dict[int, int] = {}
        # What is told was seen in the output of one rank, and holds for all.
        self._of_job = False
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def skipped(self, rank: int) -> None:
        """A rank got no slot for a step."""
        self._skipped[rank] = self._skipped.get(rank, 0) + 1

    def last(self, generation: int, rank: int) -> int | None:
        """Return the newest step of a rank, if this is the flow of its generation."""
        return self._combiner.last(rank) if generation == self._generation else None

    def add(self, rank: int, progress: Progress) -> None:
        """A rank completed a step."""
        self._of_job = False
        self._combiner.add(rank, progress)
        self._send_soon()

    def seen(self, progress: Progress) -> None:
        """The output of some rank says that the job has completed a step."""
        self._of_job = True
        for rank in self._ranks:
            self._combiner.add(rank, progress)
        self._send_soon()

    def close(self) -> None:
        """Send what is complete; nothing comes any more."""
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
        for run in self._combiner.take():
            report = StepsCompleted(
                generation=self._generation,
                first_step=run.first_step,
                end_boot_ns=run.end_boot_ns,
                stall_ns=run.stall_ns,
                # A step is missing in the vault when any rank skipped it.
                snapshots_skipped=max(self._skipped.values(), default=0),
                of_job=self._of_job,
            )
            self._outlet.record(record_of(report, self._job))
            settled, self._settled = self._settled, None
            if settled:
                settled(self._generation)
