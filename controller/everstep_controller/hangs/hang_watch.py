"""Hang watch: the ranks of a job that stands still are looked at, until it goes on.

So are those of a job that has made no step a minute after it was started. The looks and their judge
are outside the core. What enters it is a verdict: when it is another one, when a second look has
found the same, and when the core is to act on what a look finds then.
"""

import asyncio
import logging
from contextlib import suppress
from functools import partial

from everstep_common.hangs.looks import Look, follow, unjudged
from everstep_controller.core.actions import Action, Announce, SetTimer
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.timers import TimerKind
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
from everstep_controller.inspection.hang_judgement import judge_hang
from everstep_controller.inspection.inspector import Inquiry, Inspector, Keep
from everstep_controller.inspection.scheduler import Purpose
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

# A job that stands still is found here without a wake-up after this long: after a start.
_SWEEP_S = 5.0


class HangWatch:
    """Looks at each job that stands still, again and again, and tells the core what it finds."""

    def __init__(self, runtime: Runtime, inspector: Inspector) -> None:
        self._runtime = runtime
        self._inspector = inspector
        self._watched: dict[Stall, asyncio.Task[None]] = {}
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
            unjudged_for = await self._inspector.judge(
                Inquiry.now(Purpose.HANG, job),
                lambda file: judge_hang(file, self._runtime.now_ns()),
                partial(self._conclude, stall, known),
                lambda: self._stalled(stall) is not None,  # it may have gone on meanwhile
            )
            if unjudged_for:
                await self._fall_back(stall, known, unjudged_for)
            await asyncio.sleep(self._pause_s(stall, usual_s))
            usual_s = longer_pause_s(usual_s)

    async def _fall_back(self, stall: Stall, known: Known, why: str) -> None:
        """Tell the core that a look was not judged; it then goes by its timeout.

        What looks found before stays while nodes say that no rank has moved since.
        """
        job = self._stalled(stall)
        if job is None:
            return
        now_ns = self._runtime.now_ns()
        if known.streak is None or known.streak.newest.failure or not job.hang.by_word:
            known.streak = follow(known.streak, unjudged(now_ns, why))
        if is_news_of(job, known, now_ns):
            await self._tell(job, known, "")

    async def _conclude(self, stall: Stall, known: Known, look: Look, keep: Keep) -> None:
        """Tell the core what a look found where that is news; else the next look is."""
        known.streak = follow(known.streak, look)
        job = self._stalled(stall)
        if job is not None and is_news_of(job, known, look.at_ns):
            await self._tell(job, known, keep())

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
