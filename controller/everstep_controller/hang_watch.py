"""Hang watch: the ranks of a job that stands still are looked at, and who holds it back is told.

The look and its judge are outside the core. What enters it is one journaled sentence, which people
see; nothing is decided by it.
"""

import asyncio
import logging
from contextlib import aclosing

from everstep_common.hangs.judge import judge
from everstep_common.hangs.told_by_nodes import NodeTold, read_all
from everstep_common.hangs.verdict import HangClass
from everstep_common.printable import printable
from everstep_controller.api.fleet.inspector import BusyError, Inspector
from everstep_controller.core.events import HangJudged
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

# Of a verdict, what fits a line of `everstep why`.
_SENTENCE_MAX = 500
# Job, generation, and when it was found to stand still.
_Stall = tuple[str, int, int]


class HangWatch:
    """Looks at each job that stands still, once each time."""

    def __init__(self, runtime: Runtime, inspector: Inspector) -> None:
        self._runtime = runtime
        self._inspector = inspector
        self._looked: set[_Stall] = set()

    async def run(self, interval_s: float) -> None:
        """Look at intervals until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.look_once()

    async def look_once(self) -> None:
        """Look at the jobs that stand still and were not looked at, one after the other."""
        if self._runtime.state.halted:
            return
        stalled = [
            job for job in self._runtime.state.jobs.values() if job.state is JobState.STALLED
        ]
        self._looked &= {_stall(job) for job in stalled}
        for job in stalled:
            if _stall(job) not in self._looked:
                await self._look(job)

    async def _look(self, job: JobRecord) -> None:
        stall = _stall(job)
        told: list[NodeTold] = []
        try:
            async with aclosing(self._inspector.inspect(job)) as nodes:
                async for node in nodes:
                    told.append(node)
        except BusyError:
            return  # at the next tick
        self._looked.add(stall)
        sentence = await asyncio.to_thread(_judge, told)
        logger.info("job %s stands still: %s", job.name, sentence or "no rank waits for another")
        if sentence:
            self._runtime.post(HangJudged(job.id, stall[1], sentence), again=False)


def _stall(job: JobRecord) -> _Stall:
    return job.id, job.generation.number, job.since_ns


def _judge(told: list[NodeTold]) -> str:
    """Return who holds the job back; "" where no rank waits for another, as far as is known."""
    seen = read_all(told)
    verdict = judge(seen.reports, seen.world_size)
    if verdict.kind in (HangClass.NO_WAIT, HangClass.UNKNOWN):
        return ""
    return printable(verdict.sentence)[:_SENTENCE_MAX]
