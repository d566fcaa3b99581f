"""Step boundaries of planned work: after which step it is due, or that it is in vain."""

import math
from statistics import median_high

from everstep_controller.core.model.job import JobRecord, Planned, PlannedKind
from everstep_controller.core.model.state import State
from everstep_controller.core.planned import forecast, growth

# All agents hear of the chosen step within a second, and ranks that are not snapshotted at every
# step ask them each two (the agent's vault/snapshots/cadence.py): before any has passed it.
_LEAD_NS = 3_000_000_000

_STEPS_LOOKED_AT = 9

# A step is chosen anew, and all agents told, only when it is this many times as far as need be.
_FAR_MARGINS = 2

# Who makes no step for this long, and for so many of its steps, hangs, or does something else that
# an operator who wants it restarted now does not wait for (an evaluation, a compilation).
_STILL_NS = 10_000_000_000

_STILL_STEPS = 10


def margin(job: JobRecord) -> int:
    """Return how many steps pass while all agents hear which one is the last."""
    step_ns = _usual_ns(job)
    return 2 + (math.ceil(_LEAD_NS / step_ns) if step_ns > 0 else 0)


def too_far(job: JobRecord, wish: Planned, newest: int) -> bool:
    """Return whether a nearer step would do.

    The first steps of a generation are told late, at once, and look shorter than they were, so that
    a step chosen by them is far away.
    """
    assert wish.after_step is not None
    return not wish.named and wish.after_step - newest > _FAR_MARGINS * margin(job)


def reached(job: JobRecord, step: int) -> bool:
    """Return whether a step can be restored, and counts: its row may come after its copies."""
    restorable = job.lineage.recoverable_step is not None and job.lineage.recoverable_step >= step
    return restorable and (job.lineage.last_step is None or job.lineage.last_step >= step)


def still_from_ns(job: JobRecord, wish: Planned) -> int | None:
    """Return when a restart waits for no more steps, unless one is made before; None: it waits.

    Only an operator's restart at any step, and only where all steps are safe: a rank that hangs
    makes none, and there is none to lose.
    """
    safe = (
        job.lineage.recoverable_step is not None
        and job.lineage.recoverable_step == job.lineage.completed_step
    )
    if wish.kind is not PlannedKind.RESTART or wish.named or not safe or not job.ledger.steps:
        return None
    return job.ledger.steps[-1].end_ns + max(_STILL_NS, _STILL_STEPS * _usual_ns(job))


def in_vain(state: State, job: JobRecord, wish: Planned) -> str:
    """Return why a restart would change nothing now, in one sentence; empty where it would.

    Whatever the job was to go to may be gone since it was planned.
    """
    if wish.kind is PlannedKind.GROWTH and growth.grown_size(state, job) <= len(
        job.generation.members
    ):
        return f"no node waits for {job.name} any more"
    leaving = forecast.drained(state, job) if wish.kind is PlannedKind.DRAIN else []
    if not leaving or any(state.nodes[name].vacated for name in leaving):
        return ""
    if forecast.plan_without(state, job, set(state.draining))[0]:
        return ""
    return forecast.forecast(state, job, leaving[0])


def _usual_ns(job: JobRecord) -> int:
    # A single step says little: one that follows a long one is told late, and looks short.
    recent = [step.end_ns - step.start_ns for step in job.ledger.steps[-_STEPS_LOOKED_AT:]]
    return median_high(recent) if recent else 0
