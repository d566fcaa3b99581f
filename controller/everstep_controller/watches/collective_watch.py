"""Look watch: each generation is looked at once for its roles, and again where it is asked for.

A look takes a thread of each rank some 30 ms. So none is taken at intervals, but of a job that has
become slower than it was: that is looked at again after minutes.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from everstep_controller.api.fleet.sessions import Sessions
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.planned.restarts import usual_step_ns
from everstep_controller.inspection.collective_judgement import LookedAt, judge_collectives
from everstep_controller.inspection.inspector import Inquiry, Inspector, Keep
from everstep_controller.inspection.scheduler import Purpose
from everstep_controller.runtime.runtime import Runtime
from everstep_controller.slow.collective_arrival.collective_finding import (
    CollectiveFinding,
    SeenLook,
)
from everstep_controller.slow.live import LivePlaces

_S = 10**9
_SWEEP_S = 10.0
# The first steps are no measure of the others.
_FIRST_AFTER_NS = 60 * _S
# A job that has become slower is looked at again so long after the last look at it: a look takes
# some 0.6 s of processors on a node of 8 ranks, and this is 0.1 % of one.
_AGAIN_AFTER_NS = 600 * _S
_SLOWER = 1.1
# Who asks again so soon is told the same.
_SAME_FOR_NS = 10 * _S
# Who asks waits no longer; the look goes on, and the next who asks is told.
_ANSWER_S = 7.0

# Job and generation.
_Watched = tuple[str, int]


@dataclass(slots=True)
class CollectivePace:
    """When a generation is to be looked at: once, and again while it is slower than it was."""

    # When it was looked at last, also in vain; whether anything was seen; its steps at best.
    tried_ns: int = 0
    has_seen: bool = False
    fastest_ns: int = 0

    def is_due(self, running_ns: int, now_ns: int, step_ns: int) -> bool:
        """Return whether it is; ``step_ns`` is how long a step takes of late, 0: not known."""
        if step_ns and (not self.fastest_ns or step_ns < self.fastest_ns):
            self.fastest_ns = step_ns
        if self.tried_ns and now_ns - self.tried_ns < _AGAIN_AFTER_NS:
            return False
        if not self.has_seen:
            return running_ns >= _FIRST_AFTER_NS
        return step_ns > _SLOWER * self.fastest_ns > 0


@dataclass(slots=True)
class _Known:
    """What is known of a generation: the newest look, and the one that is being taken."""

    pace: CollectivePace = field(default_factory=CollectivePace)
    seen: SeenLook | None = None
    task: "asyncio.Task[None] | None" = None


class CollectiveWatch:
    """Looks at the collectives of running jobs, and keeps what the newest look at each told."""

    def __init__(self, runtime: Runtime, inspector: Inspector, sessions: Sessions) -> None:
        self._runtime = runtime
        self._inspector = inspector
        self._sessions = sessions
        self._known: dict[_Watched, _Known] = {}

    def roles(self, job: JobRecord) -> tuple[str, ...]:
        """Return the role of each rank as its process groups show it; () where they show none."""
        known = self._known.get(_watched(job))
        if known is None or known.seen is None:
            return ()
        finding = known.seen.finding
        if len(set(finding.roles)) < 2:
            return ()
        return tuple(finding.role_names[role] for role in finding.roles)

    async def newest_look(self, job: JobRecord) -> SeenLook | None:
        """Return what a look tells now; an older one or None where it takes too long."""
        if not _may_look(job):
            return None
        known = self._known.setdefault(_watched(job), _Known())
        fresh = known.seen is not None and self._age_ns(known.seen) < _SAME_FOR_NS
        if not fresh or known.task is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_ANSWER_S):
                    await asyncio.shield(self._begin(job, known))
        return known.seen

    async def run(self) -> None:
        """Look at what is due until cancelled."""
        try:
            while True:
                await asyncio.sleep(_SWEEP_S)
                self.sweep()
        finally:
            tasks = [one.task for one in self._known.values() if one.task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def sweep(self) -> None:
        """Begin looks that are due. While the controller is halted, none is."""
        state = self._runtime.state
        if state.halted:
            return
        jobs = [job for job in state.jobs.values() if _may_look(job)]
        current = {_watched(job) for job in jobs}
        self._known = {
            key: one for key, one in self._known.items() if key in current or one.task is not None
        }
        for job in jobs:
            known = self._known.setdefault(_watched(job), _Known())
            if job.world_size > 1 and known.task is None and self._is_due(job, known):
                self._begin(job, known)

    def _is_due(self, job: JobRecord, known: _Known) -> bool:
        now_ns = self._runtime.now_ns()
        return known.pace.is_due(now_ns - job.since_ns, now_ns, usual_step_ns(job))

    def _begin(self, job: JobRecord, known: _Known) -> "asyncio.Task[None]":
        if known.task is None:
            known.pace.tried_ns = self._runtime.now_ns()
            known.task = asyncio.create_task(
                self._look(job, known), name=f"collectives of {job.id}"
            )
            known.task.add_done_callback(lambda _: self._end(known))
        return known.task

    def _end(self, known: _Known) -> None:
        known.task = None

    async def _look(self, job: JobRecord, known: _Known) -> None:
        await self._inspector.judge(
            Inquiry.now(Purpose.COLLECTIVES, job),
            lambda file: judge_collectives(file, self._looked_at(job)),
            partial(self._conclude, known),
            lambda: _watched(job) in self._known and _may_look(job),
        )

    async def _conclude(self, known: _Known, finding: CollectiveFinding, _: Keep) -> None:
        known.seen = SeenLook(finding, self._runtime.now_ns())
        # Ranks that were not yet in step, or had no groups, have told nothing that lasts.
        known.pace.has_seen |= finding.tells

    def _looked_at(self, job: JobRecord) -> LookedAt:
        places, now_ns = LivePlaces.of(job, self._runtime.state.nodes), self._runtime.now_ns()
        clocks = [self._sessions.clock(name).wall_offset(now_ns) for name in places.nodes]
        return LookedAt(
            places,
            offsets_ns=tuple(one.offset_ns if one is not None else 0 for one in clocks),
            uncertainties_ns=tuple(one.uncertainty_ns if one is not None else -1 for one in clocks),
        )

    def _age_ns(self, seen: SeenLook) -> int:
        return self._runtime.now_ns() - seen.at_ns


def _watched(job: JobRecord) -> _Watched:
    return job.id, job.generation.number


def _may_look(job: JobRecord) -> bool:
    """Return whether a job has ranks that are not known to stand still; those have other looks."""
    return job.state in ACTIVE and job.state is not JobState.STALLED
