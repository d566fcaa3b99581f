"""Hang watch: the ranks of a job that stands still are looked at, until it goes on.

So are those of a job that has made no step a minute after it was started. The looks and their judge
are outside the core. What enters it is a verdict: when it is another one, when a second look has
found the same, and when the core is to act on what a look finds then.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from everstep_common.hangs.looks import follow, unjudged
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.round_robin import RoundRobinSemaphore
from everstep_controller.api.fleet.inspector import Inspector, gather_told
from everstep_controller.core.actions import Action, Announce, SetTimer
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.timers import TimerKind
from everstep_controller.hangs.evidence import HangEvidence
from everstep_controller.hangs.look_judge import judge_look
from everstep_controller.hangs.stall_looks import (
    FIRST_PAUSE_S,
    Known,
    Stall,
    is_looked_at,
    is_news_of,
    longer_pause_s,
    pause_s,
    stall_of,
    word_of,
)
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.judge_failures import JudgeFailures, JudgeName
from everstep_controller.runtime.judge_process import JudgeError
from everstep_controller.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

# So many jobs are looked at at once, besides those that people look at; users take turns.
_JOBS_AT_ONCE = 4
# So many nodes are asked at once: 2,048 of them in seconds, though each takes two.
_NODES_AT_ONCE = 1024
# A job that stands still is found here without a wake-up after this long: after a start.
_SWEEP_S = 5.0


class HangWatch:
    """Looks at each job that stands still, again and again, and tells the core what it finds."""

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
        self._watched: dict[Stall, asyncio.Task[None]] = {}
        self._turns = RoundRobinSemaphore(_JOBS_AT_ONCE)
        self._wake = asyncio.Event()
        runtime.listen(self._heed)

    def _heed(self, taken: TakenEvent) -> None:
        """Look at once where a job was just found to stand still."""
        if any(_finds_a_stand(one) for one in taken.actions):
            self._wake.set()

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            while True:
                self._wake.clear()
                self._begin_watches()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_SWEEP_S):
                        await self._wake.wait()
        finally:
            await self._end_watches()

    def _begin_watches(self) -> None:
        if self._runtime.state.halted:
            return
        self._watched = {stall: task for stall, task in self._watched.items() if not task.done()}
        now_ns = self._runtime.now_ns()
        for job in self._runtime.state.jobs.values():
            if is_looked_at(job, now_ns) and stall_of(job) not in self._watched:
                task = asyncio.create_task(self._watch(stall_of(job)), name=f"hang of {job.id}")
                self._watched[stall_of(job)] = task

    async def _end_watches(self) -> None:
        tasks = list(self._watched.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, stall: Stall) -> None:
        """Look at a job as long as it stands still."""
        known = Known()
        usual_s = FIRST_PAUSE_S
        while (job := self._stalled(stall)) is not None:
            async with self._turns.turn(job.spec.uid):
                if self._stalled(stall) is not None:  # it may have gone on meanwhile
                    await self._look_or_fall_back(stall, job, known)
            await asyncio.sleep(self._pause_s(stall, usual_s))
            usual_s = longer_pause_s(usual_s)

    async def _look_or_fall_back(self, stall: Stall, job: JobRecord, known: Known) -> None:
        """Look once. A look that breaks, by what ranks told, breaks nothing else."""
        try:
            await self._look(stall, job, known)
        except (JudgeError, OSError) as error:
            await self._fall_back(stall, known, str(error))
        except Exception as error:
            logger.exception("a look at a job that stands still broke")
            await self._fall_back(stall, known, repr(error))

    async def _fall_back(self, stall: Stall, known: Known, why: str) -> None:
        """Tell people that a look was not judged, and the core, which then goes by its timeout.

        What looks found before stays while nodes say that no rank has moved since.
        """
        self._failures.note(JudgeName.HANG, why, stall[0])
        job = self._stalled(stall)
        if job is None:
            return
        now_ns = self._runtime.now_ns()
        if known.streak is None or known.streak.newest.failure or not job.hang.by_word:
            known.streak = follow(known.streak, unjudged(now_ns, why))
        if is_news_of(job, known, now_ns):
            await self._tell(job, known, "")

    async def _look(self, stall: Stall, job: JobRecord, known: Known) -> None:
        told = await gather_told(self._inspector.ask_nodes(job, _NODES_AT_ONCE))
        if any(node.reports for node in told):
            await self._judge(stall, told, known)

    async def _judge(self, stall: Stall, told: Sequence[NodeTold], known: Known) -> None:
        """Have a look judged, and tell the core where that is news; else the next look is.

        Raises JudgeError, OSError.
        """
        now_ns = self._runtime.now_ns()
        file = await asyncio.to_thread(self._evidence.write, told)
        try:
            known.streak = follow(known.streak, await judge_look(file, now_ns))
            self._failures.clear(JudgeName.HANG, stall[0])
            job = self._stalled(stall)
            if job is not None and is_news_of(job, known, now_ns):
                await self._tell(job, known, self._evidence.keep(file))
        finally:
            file.unlink(missing_ok=True)

    def _stalled(self, stall: Stall) -> JobRecord | None:
        """Return the job of a stall that lasts."""
        job, now_ns = self._runtime.state.jobs.get(stall[0]), self._runtime.now_ns()
        lasts = job is not None and is_looked_at(job, now_ns) and stall_of(job) == stall
        return job if lasts and not self._runtime.state.halted else None

    async def _tell(self, job: JobRecord, known: Known, evidence: str) -> None:
        """Tell the core what a look found."""
        word = word_of(job, known, evidence)
        if job.state is not JobState.RUNNING:
            logger.info("job %s stands still: %s", job.name, word.sentence)
        try:
            await self._runtime.submit(word)
        except JournalFull:
            return  # as the runtime says itself; it is told again after the next look
        known.note_told()

    def _pause_s(self, stall: Stall, usual_s: float) -> float:
        job = self._stalled(stall)
        return 0.0 if job is None else pause_s(job, usual_s, self._runtime.now_ns())


def _finds_a_stand(action: Action) -> bool:
    if isinstance(action, SetTimer):
        return action.timer.startswith(f"{TimerKind.STAND}/")
    return isinstance(action, Announce) and action.reason == "JobStalled"
