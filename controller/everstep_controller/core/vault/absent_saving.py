"""Saving without an agent: a step that ranks of absent agents write to storage by themselves.

The others snapshot the same step, and what all have written is a step in storage like any other.
Only jobs of which nothing newer becomes recoverable for long have one, and those that are to be
restarted at a step meanwhile; and only in a folder.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from everstep_controller.core.jobs import unsaved
from everstep_controller.core.jobs.lifecycle import STEPPING
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.vault.cadence import first_step_ahead
from everstep_controller.core.vault.copies import Parts, StepCopies
from everstep_controller.core.vault.recovery_step import is_whole

# Until then the order for a step lies in the folder, and ranks that look there each second have
# seen it. Twice as long with each step that did not come: folders are seen late on some nodes.
_LEAD_NS = 10_000_000_000
_DOUBLINGS_MAX = 4
_NEAR_LEADS = 4
# A step that is not in storage by then is given up for another one.
_TRY_NS = 180_000_000_000


@dataclass(frozen=True, slots=True)
class AbsentSaving:
    """Step that ranks without an agent write by themselves; None: none is wanted."""

    step: int | None = None
    # From this step on no other one is snapshotted, so that slots are free for it.
    start: int = 0
    ranks: tuple[int, ...] = ()
    until_ns: int = 0
    tries: int = 0

    def after(
        self, job: JobRecord, away: Sequence[str], stored: int | None, now_ns: int
    ) -> "AbsentSaving":
        """Return what is wanted now; ``away`` are the members whose agents are."""
        wanted = unsaved.is_unsaved(job) or _leaves_soon(job)
        if not away or not wanted or not unsaved.has_folder(job):
            return AbsentSaving()
        known = job.lineage.recoverable_step
        if stored is not None and (known is None or known < stored):
            return AbsentSaving()  # it is there, and the job is about to hear of it
        ranks = _ranks_of(job, away)
        planned = _planned_step(job)
        goes_on = self.step is not None and now_ns < self.until_ns and ranks == self.ranks
        if goes_on and planned in (None, self.step):
            return self
        tries = 0 if planned is not None or self.step is None else self.tries + 1
        return _choose(job, ranks, tries, planned, now_ns)

    def in_the_way(
        self, steps: Mapping[int, StepCopies], recoverable: int | None, stored: int | None
    ) -> tuple[int, ...]:
        """Return steps whose slots the wanted one needs, and of which absent ranks have none.

        ``recoverable`` is the one to go back to in memory: it is kept, and what is before it.
        """
        if self.step is None:
            return ()
        after = -1 if recoverable is None else recoverable
        return tuple(one for one in sorted(steps) if after < one < self.step and one != stored)


def _ranks_of(job: JobRecord, nodes: Sequence[str]) -> tuple[int, ...]:
    count, places = job.spec.processes_per_node, sorted(map(job.generation.members.place, nodes))
    return tuple(rank for at in places for rank in range(at * count, (at + 1) * count))


def kept_step(
    job: JobRecord, steps: Mapping[int, StepCopies], recoverable: int | None, stored: int | None
) -> int | None:
    """Return the step that is kept in memory until the wanted one is stored; None: none need be.

    Before a member's agent has told what it holds, as after a start of the controller, nothing in
    memory seems to be recoverable. But the core knows which step was, and that or a little newer
    one is whole there: what is older was freed.
    """
    known = job.lineage.recoverable_step
    if recoverable is not None or known is None or (stored is not None and stored >= known):
        return recoverable
    number, held = job.generation.number, ((step, steps[step].memory) for step in steps)
    points = [point for point in job.lineage.branch if point.generation == number]
    whole = (
        step
        for step, copies in held
        if step >= known and any(is_whole(p, Parts(copies.ranks, copies.layouts)) for p in points)
    )
    return min(whole, default=known)


def _leaves_soon(job: JobRecord) -> bool:
    """Return whether a restart is planned at a step that ranks come to soon, or have passed.

    No other step is saved before it, so one that is far away is not waited for.
    """
    step = job.planned.after_step if job.planned is not None else None
    near = step is not None and step <= first_step_ahead(job, _NEAR_LEADS * _LEAD_NS)
    return near and job.state in STEPPING


def _planned_step(job: JobRecord) -> int | None:
    """Return after which step a restart is planned soon; None: none is, or ranks have passed it."""
    if job.planned is None or job.planned.after_step is None or not _leaves_soon(job):
        return None
    return job.planned.after_step if job.planned.after_step > _last_step(job) else None


def _last_step(job: JobRecord) -> int:
    return -1 if job.lineage.last_step is None else job.lineage.last_step


def _choose(
    job: JobRecord, ranks: tuple[int, ...], tries: int, planned: int | None, now_ns: int
) -> AbsentSaving:
    start = first_step_ahead(job)
    lead_ns = _LEAD_NS << min(tries, _DOUBLINGS_MAX)
    step = first_step_ahead(job, lead_ns)
    if planned is not None:
        step, start = planned, min(start, planned)
    return AbsentSaving(step, start, ranks, now_ns + _TRY_NS + lead_ns, tries)
