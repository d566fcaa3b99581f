"""Hang watch: the ranks of a job that stands still are looked at, until it goes on.

So are those of a job that has made no step a minute after it was started. The looks and their judge
are outside the core. What enters it is a verdict: when it is another one, when a second look has
found the same, and when the core is to act on what a look finds then.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from everstep_common.hangs.looks import Look, Streak, follow, says_same, unjudged
from everstep_common.hangs.reports.verdict import HangClass
from everstep_common.hangs.told_by_nodes import NodeTold
from everstep_common.printable import printable
from everstep_controller.api.fleet.inspector import Inspector, gather_told
from everstep_controller.core.actions import Action, Announce, SetTimer
from everstep_controller.core.events import HangJudged
from everstep_controller.core.hangs import response
from everstep_controller.core.jobs.lifecycle import BEGINNING
from everstep_controller.core.model.hang import SeenHang
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.timers import TimerKind
from everstep_controller.hangs.evidence import HangEvidence
from everstep_controller.hangs.fair_turns import FairTurns
from everstep_controller.hangs.look_judge import judge_look
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.judge_failures import JudgeFailures, JudgeName
from everstep_controller.runtime.judge_process import JudgeError
from everstep_controller.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

# Of a verdict, what fits a line of `everstep why`.
_SENTENCE_MAX = 500
# After the first look the next one comes so soon, each further one after twice as long, and none
# later than that.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
# So many jobs are looked at at once, besides those that people look at; users take turns.
_JOBS_AT_ONCE = 4
# So many nodes are asked at once: 2,048 of them in seconds, though each takes two.
_NODES_AT_ONCE = 1024
# A job that stands still is found here without a wake-up after this long: after a start.
_SWEEP_S = 5.0
# After so many verdicts on one stall, another one is told so long after the last: 64 KB each.
_TELLINGS_SOON = 16
_TOLD_LATER_S = 600
# Ranks that load wait for one another in turn: of a job that has made no step yet, who may go on by
# itself is named when no rank has moved for so long.
_BEGINNING_UNMOVED_S = 60
_S = 1_000_000_000

# Job, generation, and when it was found to stand still, or was started.
_Stall = tuple[str, int, int]


@dataclass(slots=True)
class Known:
    """What is known of a stall: the looks in a row, and what the core was told last."""

    streak: Streak | None = None
    told: Look | None = None
    told_looks: int = 0
    told_ns: int = 0
    # How often.
    tellings: int = 0


def is_news(known: Known, due_ns: int, now_ns: int, *, begins: bool = False) -> bool:
    """Return whether the core decides anything by the newest look that it has not decided already.

    ``due_ns`` is when the core acts on what is found then; 0: never. ``begins``: the job has made
    no step since it was started.
    """
    assert known.streak is not None
    newest = known.streak.newest
    unmoved_ns = newest.at_ns - known.streak.unmoved_since_ns
    if begins and not newest.stuck and unmoved_ns < _BEGINNING_UNMOVED_S * _S:
        return False
    if known.told is None:
        return newest.verdict.kind is not HangClass.NO_WAIT
    if 0 < due_ns <= now_ns:
        return True
    if says_same(known.told.verdict, newest.verdict) and known.told.pause == newest.pause:
        return known.told_looks < 2 <= known.streak.looks
    # Each is journaled, and what ranks tell may be another thing each time.
    return known.tellings < _TELLINGS_SOON or now_ns - known.told_ns >= _TOLD_LATER_S * _S


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
        self._watched: dict[_Stall, asyncio.Task[None]] = {}
        self._turns = FairTurns(_JOBS_AT_ONCE)
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
            if _is_looked_at(job, now_ns) and _stall(job) not in self._watched:
                task = asyncio.create_task(self._watch(_stall(job)), name=f"hang of {job.id}")
                self._watched[_stall(job)] = task

    async def _end_watches(self) -> None:
        tasks = list(self._watched.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, stall: _Stall) -> None:
        """Look at a job as long as it stands still."""
        known = Known()
        pause_s = _FIRST_PAUSE_S
        while (job := self._stalled(stall)) is not None:
            async with self._turns.turn(job.spec.uid):
                if self._stalled(stall) is not None:  # it may have gone on meanwhile
                    await self._look_or_fall_back(stall, job, known)
            await asyncio.sleep(self._pause_s(stall, pause_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _look_or_fall_back(self, stall: _Stall, job: JobRecord, known: Known) -> None:
        """Look once. A look that breaks, by what ranks told, breaks nothing else."""
        try:
            await self._look(stall, job, known)
        except (JudgeError, OSError) as error:
            await self._fall_back(stall, known, str(error))
        except Exception as error:
            logger.exception("a look at a job that stands still broke")
            await self._fall_back(stall, known, repr(error))

    async def _fall_back(self, stall: _Stall, known: Known, why: str) -> None:
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
        if self._is_news(job, known, now_ns):
            await self._tell(job, known, "")

    async def _look(self, stall: _Stall, job: JobRecord, known: Known) -> None:
        told = await gather_told(self._inspector.ask_nodes(job, _NODES_AT_ONCE))
        if any(node.reports for node in told):
            await self._judge(stall, told, known)

    async def _judge(self, stall: _Stall, told: Sequence[NodeTold], known: Known) -> None:
        """Have a look judged, and tell the core where that is news; else the next look is.

        Raises JudgeError, OSError.
        """
        now_ns = self._runtime.now_ns()
        file = await asyncio.to_thread(self._evidence.write, told)
        try:
            known.streak = follow(known.streak, await judge_look(file, now_ns))
            self._failures.clear(JudgeName.HANG, stall[0])
            job = self._stalled(stall)
            if job is not None and self._is_news(job, known, now_ns):
                await self._tell(job, known, self._evidence.keep(file))
        finally:
            file.unlink(missing_ok=True)

    def _is_news(self, job: JobRecord, known: Known, now_ns: int) -> bool:
        if job.state is not JobState.RUNNING:
            return is_news(known, job.hang.due_ns, now_ns, begins=job.state in BEGINNING)
        assert known.streak is not None
        told, newest = known.told, known.streak.newest
        return told is None or told.place != newest.place or told.stuck != newest.stuck

    def _stalled(self, stall: _Stall) -> JobRecord | None:
        """Return the job of a stall that lasts."""
        job, now_ns = self._runtime.state.jobs.get(stall[0]), self._runtime.now_ns()
        lasts = job is not None and _is_looked_at(job, now_ns) and _stall(job) == stall
        return job if lasts and not self._runtime.state.halted else None

    async def _tell(self, job: JobRecord, known: Known, evidence: str) -> None:
        """Tell the core what a look found."""
        assert known.streak is not None
        streak = known.streak
        verdict = streak.newest.verdict
        seen = SeenHang(
            verdict=verdict,
            evidence=evidence,
            stuck=streak.newest.stuck,
            looks=streak.looks,
            same_ns=streak.newest.at_ns - streak.same_since_ns,
            unmoved_ns=streak.newest.at_ns - streak.unmoved_since_ns,
            pause=streak.newest.pause,
            place=streak.newest.place,
            failure=streak.newest.failure,
            devices=streak.newest.devices,
        )
        sentence = printable(verdict.sentence)[:_SENTENCE_MAX]
        if verdict.kind is HangClass.NO_WAIT and known.told is not None:
            sentence = f"what was found before is no longer so: {sentence}"
        if job.state is not JobState.RUNNING:
            logger.info("job %s stands still: %s", job.name, sentence)
        try:
            await self._runtime.submit(HangJudged(job.id, job.generation.number, sentence, seen))
        except JournalFull:
            return  # as the runtime says itself; it is told again after the next look
        known.told, known.told_looks = streak.newest, streak.looks
        known.told_ns, known.tellings = streak.newest.at_ns, known.tellings + 1

    def _pause_s(self, stall: _Stall, pause_s: float) -> float:
        """Return how long until the next look, which is no later than the core acts on it."""
        job = self._stalled(stall)
        if job is None:
            return 0.0
        if job.state is JobState.RUNNING and job.hang.seen is not None:
            return _LONGEST_PAUSE_S  # where it stands is usual: who stops there is seen then
        if not job.hang.due_ns:
            return pause_s
        due_s = (job.hang.due_ns - self._runtime.now_ns()) / _S
        return min(pause_s, max(due_s, _FIRST_PAUSE_S))


def _is_looked_at(job: JobRecord, now_ns: int) -> bool:
    """Return whether a job stands still, as people are told or not, or does not begin for long."""
    from_ns = response.due_from_ns(job)
    return from_ns is not None and from_ns <= now_ns


def _stall(job: JobRecord) -> _Stall:
    return job.id, job.generation.number, response.due_from_ns(job) or 0


def _finds_a_stand(action: Action) -> bool:
    if isinstance(action, SetTimer):
        return action.timer.startswith(f"{TimerKind.STAND}/")
    return isinstance(action, Announce) and action.reason == "JobStalled"
