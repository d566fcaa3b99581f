"""End watch: asks who held up a generation that ended because ranks gave up waiting.

Or that ended over data that did not fit: then who called something else.

Its launchers look at the ranks that have not exited before they kill them, and tell what they saw.
The judge is outside the core; what enters it is one journaled sentence, and the nodes it names.
"""

import asyncio
import logging
from dataclasses import dataclass

from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.ras_answer import MISSING
from everstep_common.hangs.reports.verdict import HangClass, HangVerdict
from everstep_common.printable import printable
from everstep_common.reports import RankExited
from everstep_controller.api.fleet.inspector import BusyError, Inspector, gather_told
from everstep_controller.core.actions import StopGeneration
from everstep_controller.core.events import (
    JournaledEvent,
    RanksExited,
    Reported,
    TimeoutJudged,
    each_event,
)
from everstep_controller.core.jobs.orders import needs_look
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.hangs.evidence import HangEvidence
from everstep_controller.hangs.look_judge import judge_look
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.judge_failures import JudgeFailures, JudgeName
from everstep_controller.runtime.judge_process import JudgeError
from everstep_controller.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

# Of a verdict, what fits a line of `everstep why`.
_SENTENCE_MAX = 500
_NODES_MAX = 16
# Somebody else looks at the job, or at too many others: for a few seconds at most.
_BUSY_S = 0.5
_TRIES_MAX = 20
# So many jobs are asked about at once.
_AT_ONCE = 4
# Of more generations that end at once, the oldest are not asked about.
_WAITING_MAX = 256


@dataclass(frozen=True, slots=True)
class _Ended:
    """A generation whose launchers were told to look, and its members in the order of ranks."""

    job: str
    generation: int
    members: tuple[str, ...]


class EndWatch:
    """Looks, once each, at generations that ended by the timeout of a collective."""

    def __init__(
        self,
        runtime: Runtime,
        inspector: Inspector,
        evidence: HangEvidence,
        failures: JudgeFailures,
    ) -> None:
        self._runtime = runtime
        self._inspector = inspector
        self._evidence = evidence
        self._failures = failures
        self._asked: dict[str, int] = {}
        self._ended: asyncio.Queue[_Ended] = asyncio.Queue(_WAITING_MAX)

    def note_event(self, taken: TakenEvent) -> None:
        """Note the generations that are stopped after a look at them.

        That one is due may be known only when the order is out: a launcher whose rank is giving up
        looks unasked, and who lost the connection by that ended sooner.
        """
        jobs = self._runtime.state.jobs
        for action in taken.actions:
            if isinstance(action, StopGeneration) and action.look:
                self._maybe_note(jobs.get(action.job_id))
        for name in jobs_of_exits(taken.event):
            job = self._runtime.state.job(name)
            if job is not None and job.state is JobState.STOPPING:
                self._maybe_note(job if needs_look(job, job.generation.number) else None)

    def _maybe_note(self, job: JobRecord | None) -> None:
        if job is not None and self._asked.get(job.id) != job.generation.number:
            self._note(job)

    async def run(self) -> None:
        """Ask about some at once until cancelled."""
        async with asyncio.TaskGroup() as workers:
            for number in range(_AT_ONCE):
                workers.create_task(self._work(), name=f"end watch {number}")

    async def _work(self) -> None:
        while True:
            ended = await self._ended.get()
            job = self._runtime.state.jobs.get(ended.job)
            if job is None or self._runtime.state.halted:
                continue
            look = asyncio.create_task(self._look(job, ended), name=f"end of {job.id}")
            try:
                await asyncio.wait([look])
            finally:
                look.cancel()
            self._say_failure(job, look)

    def _say_failure(self, job: JobRecord, look: asyncio.Task[None]) -> None:
        """Tell of a look that broke, by what ranks told: it must break nothing else."""
        if error := look.exception():
            logger.error("the look at the end of a generation broke", exc_info=error)
            self._failures.note(JudgeName.END, repr(error), job.id)

    def _note(self, job: JobRecord) -> None:
        known = self._runtime.state.jobs
        self._asked = {name: number for name, number in self._asked.items() if name in known}
        self._asked[job.id] = job.generation.number
        if self._ended.full():
            self._ended.get_nowait()
        members = tuple(job.generation.members)
        self._ended.put_nowait(_Ended(job.id, job.generation.number, members))

    async def _look(self, job: JobRecord, ended: _Ended) -> None:
        told = await self._ask(job, ended)
        if not any(node.reports for node in told):
            return
        try:
            sentence, ranks = await self._judge(told)
        except (JudgeError, OSError) as error:
            self._failures.note(JudgeName.END, str(error), job.id)
            return
        self._failures.clear(JudgeName.END, job.id)
        logger.info(
            "job %s, generation %d ended by a timeout: %s",
            *(job.name, ended.generation, sentence or "who did not come is not known"),
        )
        if sentence:
            places = sorted({rank // job.spec.processes_per_node for rank in ranks})
            nodes = tuple(ended.members[one] for one in places if one < len(ended.members))
            event = TimeoutJudged(job.id, ended.generation, sentence, nodes[:_NODES_MAX])
            self._runtime.post(event, again=False)

    async def _ask(self, job: JobRecord, ended: _Ended) -> list[NodeTold]:
        for _ in range(_TRIES_MAX):
            answers = self._inspector.inspect_ended(job, ended.generation, ended.members)
            try:
                return await gather_told(answers)
            except BusyError:
                await asyncio.sleep(_BUSY_S)
        return []

    async def _judge(self, told: list[NodeTold]) -> tuple[str, tuple[int, ...]]:
        """Return who did not come, and which ranks; "" where that cannot be told.

        Raises JudgeError, OSError.
        """
        file = await asyncio.to_thread(self._evidence.write, told)
        try:
            look = await judge_look(file, self._runtime.now_ns())
            found = _told(look.verdict)
            if found[0]:
                self._evidence.keep(file)
        finally:
            file.unlink(missing_ok=True)
        return found


def jobs_of_exits(event: JournaledEvent) -> tuple[str, ...]:
    """Return the names of the jobs of which ranks ended, each once, in the order of their ends."""
    found: dict[str, None] = {}
    for one in each_event(event):
        match one:
            case RanksExited(job=job) | Reported(report=RankExited(), job=job):
                found[job] = None
    return tuple(found)


def _told(verdict: HangVerdict) -> tuple[str, tuple[int, ...]]:
    if verdict.kind in (HangClass.NO_WAIT, HangClass.UNKNOWN):
        return "", ()
    # No node is at fault of what a program does, nor of storage that does not answer.
    of_no_node = verdict.kind in (HangClass.DESYNC, HangClass.KNOWN_SOFTWARE, HangClass.STORAGE)
    ranks = () if of_no_node else tuple(culprit.rank for culprit in verdict.culprits)
    missing = [line for line in verdict.ras if MISSING in line]
    sentence = "; ".join([verdict.sentence.rstrip("."), *missing[:1]])
    return printable(sentence)[:_SENTENCE_MAX], ranks
