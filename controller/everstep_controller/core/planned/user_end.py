"""End at a user's word: a running job ends at a step that is saved, if there is time for one.

Whoever ends it (SIGTERM, scancel, a pod that is deleted) kills it after a grace. A step boundary is
waited for only if it, the copies and the way to storage are expected to fit into that.
"""

from typing import NamedTuple

from everstep_common import reports
from everstep_common.endings import by_user_on
from everstep_common.reports import EndAsked
from everstep_controller.core.events import Reported
from everstep_controller.core.jobs import identity, incidents, restore_point
from everstep_controller.core.jobs.lifecycle import ACTIVE, OVER, STEPPING
from everstep_controller.core.model.job import (
    Cause,
    JobFault,
    JobRecord,
    JobState,
    Planned,
    PlannedKind,
)
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.state import State
from everstep_controller.core.planned import restarts
from everstep_controller.core.registry import Handlers, Timers, job_timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# From the end of a step to the word that all its copies are verified: rows of progress come every
# 0.2 s, hashes and replicas of a usual state take less than the rest.
_COMMIT_NS = 1_000_000_000


class Boundary(NamedTuple):
    """Choice of the last step: after which one the job ends, or why it waits for none."""

    after_step: int | None
    sentence: str


def end_asked(turn: Turn, event: Reported[EndAsked]) -> None:
    """A launcher's user wants its job to end, and gives it a while."""
    node = event.origin.node
    job = turn.state.job(event.job)
    if job is not None and node not in job.launchers:
        job = identity.job_after(turn.state, job)
    if job is None or job.state in OVER or job.after or node not in job.launchers:
        return
    # Where the node itself goes down, nobody means the job; and a spare is not missed.
    away = turn.state.nodes[node].state is NodeState.MAINTENANCE
    if away or (node not in job.generation.members and job.state is not JobState.FORMING):
        return
    by_ns = turn.now_ns + event.report.grace_ns
    asked = job.ending.asked_on
    job.ending.by_ns = min(job.ending.by_ns, by_ns) if asked else by_ns
    if not asked:
        job.ending.asked_on, job.ending.asked_ns = node, turn.now_ns
        message = f"{job.name} is to end within {_seconds(event.report.grace_ns)}: "
        turn.announce(job.name, "EndAsked", f"{message}{event.report.reason} on {node}")
    turn.mark_job(job.id)


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Bring a job to its end whose user wants that: at the chosen step, or at once."""
    if not job.ending.asked_on or job.ending.wanted or job.state in OVER:
        return
    wish = job.planned
    if wish is None or not _is_of_its_user(job, wish):
        _choose_last_step(turn, job)
    elif job.state not in ACTIVE:
        _end(turn, job, "it was stopping already")
    elif wish.after_step is not None and restarts.is_reached(job, wish.after_step):
        _end(turn, job, f"step {job.lineage.recoverable_step} is saved")
    elif turn.now_ns >= _latest_ns(job):
        _end(turn, job, f"step {wish.after_step} was not saved in time")


def choose_boundary(state: State, job: JobRecord, now_ns: int) -> Boundary:
    """Return after which step to end, of those that can be saved in the time that is left."""
    if job.state not in STEPPING:
        return Boundary(None, f"at once, because {_why_no_step(job)}")
    if not restore_point.has_state(job):
        return Boundary(None, "at once, because it makes no snapshots")
    left_ns = job.ending.by_ns - now_ns
    newest = -1 if job.lineage.last_step is None else job.lineage.last_step
    # All ranks hear of a step so far away in time; where every step is saved, none need to hear.
    steps = [restarts.margin(state, job)] + ([1] if job.cadence.every == 1 else [])
    needed_ns = [_needed_ns(job, count, now_ns) for count in steps]
    for count, needed in zip(steps, needed_ns, strict=True):
        if needed <= left_ns:
            return Boundary(newest + count, f"{_seconds(needed)} are expected to be needed")
    return Boundary(
        None,
        f"at once, because another step would need {_seconds(min(needed_ns))}, "
        f"and {_seconds(left_ns)} are left",
    )


def _why_no_step(job: JobRecord) -> str:
    """Return why there is none to wait for, also of a job that trains and tells no steps."""
    if job.state in ACTIVE:
        return f"no step of generation {job.generation.number} has been seen"
    stopping = job.state is JobState.STOPPING
    return "its ranks are being stopped already" if stopping else "none of its ranks runs"


def _is_of_its_user(job: JobRecord, wish: Planned) -> bool:
    """Return whether the last step was chosen for the grace, and not for an operator before."""
    asked = (job.ending.asked_on, job.ending.asked_ns)
    return wish.kind is PlannedKind.STOP and wish.by == asked[0] and wish.ordered_ns >= asked[1]


def _choose_last_step(turn: Reconciliation, job: JobRecord) -> None:
    chosen = choose_boundary(turn.state, job, turn.now_ns)
    if chosen.after_step is None:
        _end(turn, job, chosen.sentence)
        return
    turn.drop_timer(f"{TimerKind.PLANNED}/{job.id}")
    number, node = job.generation.number, job.ending.asked_on
    wish = Planned(PlannedKind.STOP, node, by_user_on(node), number, turn.now_ns, chosen.after_step)
    job.planned = wish
    turn.set_timer(f"{TimerKind.ENDING}/{job.id}", max(0, _latest_ns(job) - turn.now_ns))
    message = f"{job.name} ends after step {chosen.after_step}: {chosen.sentence}"
    turn.announce(job.name, "EndPlanned", message)
    if restarts.is_reached(job, chosen.after_step):
        turn.mark_job(job.id)


def _needed_ns(job: JobRecord, steps: int, now_ns: int) -> int:
    """Return what so many steps, the copies of the last one and its way to storage may take."""
    done_ns = max(0, now_ns - job.ledger.steps[-1].end_ns) if job.ledger.steps else 0
    step_ns = restarts.usual_step_ns(job)
    # A step that lasts longer than usual says nothing of when it ends.
    rest_ns = steps * step_ns - min(done_ns, step_ns)
    return rest_ns + job.snapshot_costs.usual_ns + _COMMIT_NS + _storing_ns(job)


def _storing_ns(job: JobRecord) -> int:
    return job.snapshot_costs.storing_ns if job.spec.storage is not None else 0


def _latest_ns(job: JobRecord) -> int:
    """Return until when a step is waited for: what is saved by then can still be stored in time."""
    return max(job.ending.asked_ns, job.ending.by_ns - _storing_ns(job))


def _end(turn: Reconciliation, job: JobRecord, why: str) -> None:
    """Stop the ranks, and have the job end when they are gone."""
    node = job.ending.asked_on
    turn.drop_timer(f"{TimerKind.ENDING}/{job.id}")
    job.planned = None
    job.ending.wanted = by_user_on(node)
    incidents.judge_fault(
        turn, job, JobFault(turn.now_ns, Cause.USER, node, f"{by_user_on(node)}: {why}")
    )


def _seconds(duration_ns: int) -> str:
    return f"{duration_ns / 1e9:.1f} s"


HANDLERS: Handlers = {reports.EndAsked: end_asked}
TIMERS: Timers = job_timers(TimerKind.ENDING)
