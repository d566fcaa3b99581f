"""Slow monitor: who makes the others of a running job wait, judged by what agents send every 5 s.

Seconds of steps and their judges are outside the core. What enters it is who is slow, when that
changes, with the numbers that decided.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from everstep_common.printable import brief
from everstep_common.reports import RankColumns
from everstep_controller.core.accounting.slow_time import SlowCause
from everstep_controller.core.events import SlowJudged
from everstep_controller.core.jobs.lifecycle import STEPPING
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.slowness import SlowPart
from everstep_controller.core.planned.swaps import slow_parts
from everstep_controller.runtime.judge_failures import JudgeFailures, JudgeName
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.slow.live import LiveFinding, LivePlaces, LiveSlowness, news_of
from everstep_controller.slow.verdict import ImbalanceKind, PauseKind
from everstep_controller.telemetry.rank_progress import RankProgressTable

logger = logging.getLogger(__name__)

# As often as agents send.
_INTERVAL_S = 5.0
# What a node told longer ago says nothing of now.
_FRESH_NS = 30 * 10**9
# A job may tell anything, and each change is journaled.
_CHANGES_EVERY_NS = 60 * 10**9
# Where a judge broke, the next one begins after this long, with nothing learned.
_AGAIN_NS = 60 * 10**9

# What is uneven without being slow; of the kinds that are left out seconds alone cannot tell.
_CAUSES = {
    ImbalanceKind.DATA: SlowCause.DATA,
    ImbalanceKind.MOVING: SlowCause.DATA,
    ImbalanceKind.STAGE: SlowCause.STAGE,
}
# They warm up, or are longer for good.
_NO_PAUSES = {PauseKind.FIRST_STEPS, PauseKind.LASTING}

# Job and generation.
_Watched = tuple[str, int]


class SlowMonitor:
    """Has the ranks of each job that steps judged, and tells the core who is slow."""

    def __init__(
        self,
        runtime: Runtime,
        ranks: RankProgressTable,
        failures: JudgeFailures,
        roles: Callable[[JobRecord], Sequence[str]] = lambda _: (),
    ) -> None:
        """``roles`` returns that of each rank as process groups show it; () if that is unknown."""
        self._runtime = runtime
        self._roles = roles
        self._ranks = ranks
        self._failures = failures
        self._watched: dict[_Watched, LiveSlowness] = {}
        self._findings: dict[_Watched, LiveFinding] = {}
        # Generations at which the judge broke, and when: it begins again after a while.
        self._broken_ns: dict[_Watched, int] = {}
        # When the core was told last.
        self._told_ns: dict[_Watched, int] = {}

    def finding(self, job: JobRecord) -> LiveFinding:
        """Return what is known of a job's ranks."""
        return self._findings.get(_watched(job), LiveFinding())

    async def run(self) -> None:
        """Judge at intervals until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            await self.judge_once()

    async def judge_once(self) -> None:
        """Judge all jobs by what their nodes told last. While the controller is halted, none is."""
        state = self._runtime.state
        if state.halted:
            return
        jobs = [job for job in state.jobs.values() if job.state in STEPPING]
        self._forget_others({_watched(job) for job in jobs})
        for job in jobs:
            if self._runtime.now_ns() >= self._broken_ns.get(_watched(job), -_AGAIN_NS) + _AGAIN_NS:
                await self._judge(job)

    def _forget_others(self, current: set[_Watched]) -> None:
        self._watched = {key: one for key, one in self._watched.items() if key in current}
        self._findings = {key: one for key, one in self._findings.items() if key in current}
        self._told_ns = {key: at_ns for key, at_ns in self._told_ns.items() if key in current}
        self._broken_ns = {key: at_ns for key, at_ns in self._broken_ns.items() if key in current}

    async def _judge(self, job: JobRecord) -> None:
        key = _watched(job)
        live = self._watched.get(key)
        if live is None:
            places = LivePlaces.of(job, self._runtime.state.nodes)
            live = self._watched[key] = LiveSlowness(places)
        step = job.lineage.last_step or 0
        if roles := self._roles(job):
            live.learn_roles(roles)
        try:
            # In a thread: up to 50 ms, of which numpy holds the loop up for a few.
            told, now_ns = self._told(job), self._runtime.now_ns()
            finding = await asyncio.to_thread(live.judge_told, told, step, now_ns)
        except Exception as error:  # By what ranks told: it must break nothing else.
            logger.exception("the judge of slow ranks failed")
            self._broken_ns[key] = self._runtime.now_ns()
            self._watched.pop(key, None)
            self._failures.note(JudgeName.SLOW_RANKS, repr(error), job.id)
            return
        self._failures.clear(JudgeName.SLOW_RANKS, job.id)
        self._findings[key] = finding
        self._tell(key, finding)

    def _tell(self, key: _Watched, finding: LiveFinding) -> None:
        """Tell the core what has changed, once a minute; repeat what is lost."""
        job = self._runtime.state.jobs.get(key[0])
        if job is None or _watched(job) != key or job.state not in STEPPING:
            return
        now_ns = self._runtime.now_ns()
        news, causes = news_of(slow_parts(job), finding), slow_causes(job, finding)
        changed = news is not None or causes != known_causes(job)
        if changed and now_ns - self._told_ns.get(key, 0) >= _CHANGES_EVERY_NS:
            self._told_ns[key] = now_ns
            parts = slow_parts(job) if news is None else news
            event = SlowJudged(job.id, job.generation.number, _sentence(parts), parts, causes)
            self._runtime.post(event, again=False)

    def _told(self, job: JobRecord) -> dict[int, RankColumns]:
        """Return what the nodes of a generation told lately, by their place in it."""
        members = {name: place for place, name in enumerate(job.generation.members)}
        since_ns = self._runtime.now_ns() - _FRESH_NS
        return {
            members[one.node]: one.columns
            for one in self._ranks.of_job(job.id, members)
            if one.generation == job.generation.number and one.told_ns >= since_ns
        }


def _watched(job: JobRecord) -> _Watched:
    return job.id, job.generation.number


def known_causes(job: JobRecord) -> tuple[str, ...]:
    """Return what the core knows of what else makes steps of a job's generation long."""
    return job.slow.causes if job.slow.generation == job.generation.number else ()


def slow_causes(job: JobRecord, finding: LiveFinding) -> tuple[str, ...]:
    """Return what else makes steps long, as soon as enough was seen; before, what was known."""
    if finding.verdict is None or not finding.is_sure:
        return known_causes(job)
    kinds = {one.kind for one in finding.verdict.imbalances}
    pauses = {one.kind for one in finding.verdict.pauses}
    found = {cause.value for kind, cause in _CAUSES.items() if kind in kinds}
    found |= {SlowCause.PAUSES.value} if pauses - _NO_PAUSES else set()
    return tuple(sorted(found))


def _sentence(parts: Sequence[SlowPart]) -> str:
    if not parts:
        return "nobody makes the others wait any more"
    more = f"; and {len(parts) - 1} more" if len(parts) > 1 else ""
    return brief(parts[0].sentence) + more
