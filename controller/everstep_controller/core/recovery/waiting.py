"""Waiting jobs: for nodes, or until their state can be reached again, and what they say."""

from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.jobs import orders
from everstep_controller.core.jobs.lifecycle import JobEvent, category, move_job
from everstep_controller.core.model.job import JobRecord, JobState, PlanKind
from everstep_controller.core.model.state import State
from everstep_controller.core.turn import Turn

# How long a job waits before it asks again for a state that nobody could give back.
_RETRY_NS = 15_000_000_000

# So many nodes are named in a sentence.
_NAMED_MAX = 3


def wait_for_capacity(turn: Turn, job: JobRecord, reason: str) -> None:
    """Have a job wait, and say for what."""
    job.recovery.plan = PlanKind.WAITED
    is_news = reason != job.reason
    forming = job.state is JobState.FORMING
    if forming:
        job.reason = reason
    else:
        move_job(turn, job, JobEvent.NO_CAPACITY, reason)
    if is_news:
        orders.hold_all(turn, job)
    if not forming and job.ledger.segments[-1].category != category(job, Category.CAPACITY):
        job.ledger.enter(turn.now_ns, category(job, Category.CAPACITY))


def waits_for_state(job: JobRecord) -> bool:
    """Return whether a job's plan waits until its state can be reached."""
    return job.state is JobState.WAITING_CAPACITY and bool(job.generation.unreachable)


def wait_for_state(turn: Turn, job: JobRecord, lost: str) -> None:
    """Have a job wait until its state can be reached; asked again, it makes no new generation."""
    if lost != job.generation.unreachable:
        turn.announce(job.name, "StateUnreachable", f"{job.name}: {lost}")
    job.generation.unreachable = lost
    wait_for_capacity(
        turn, job, f"its state cannot be restored: {lost}; {_next_step(turn.state, job)}"
    )
    turn.set_timer(f"retry/{job.name}", _RETRY_NS)


def state_found(turn: Turn, job: JobRecord) -> None:
    """Go on with the generation that was planned."""
    job.generation.unreachable = ""
    turn.drop_timer(f"retry/{job.name}")
    members = ", ".join(job.generation.members)
    move_job(turn, job, JobEvent.PLANNED, f"generation {job.generation.number} on {members}")
    job.ledger.enter(turn.now_ns, category(job, Category.SCHEDULE))


def _next_step(state: State, job: JobRecord) -> str:
    anew = (
        "start it" if job.lineage.past and not job.lineage.started else "end it and start it again"
    )
    fresh = f"to begin anew, {anew} with --fresh"
    away = [name for name in job.lineage.holders if not state.nodes[name].connected]
    if not away:
        return f"no node that had some of it is away; {fresh}"
    shown = ", ".join(away[:_NAMED_MAX]) + (" …" if len(away) > _NAMED_MAX else "")
    return f"it goes on when what {shown} had can be reached: bring back the node, or {fresh}"
