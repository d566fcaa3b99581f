"""Waiting jobs: for nodes, or until their state can be reached again, and what they say."""

from everstep_controller.core.jobs import orders, restore_point
from everstep_controller.core.jobs.lifecycle import JobEvent
from everstep_controller.core.jobs.transition import move_job
from everstep_controller.core.model.job import JobRecord, JobState, PlanKind
from everstep_controller.core.model.state import State
from everstep_controller.core.timers import TimerKind
from everstep_controller.core.turn import Turn

# How long a job waits before it asks again for a state that nobody could give back.
_RETRY_NS = 15_000_000_000

# So many nodes are named in a sentence.
_NAMED_MAX = 3


def wait_for_capacity(turn: Turn, job: JobRecord, reason: str) -> None:
    """Have a job wait for nodes, or for automation to go on, and say for what."""
    job.recovery.plan = PlanKind.WAITED
    if job.state is not JobState.FORMING:
        move_job(turn, job, JobEvent.NO_CAPACITY, reason)
    elif reason != job.reason:
        job.reason = reason
        orders.hold_all(turn, job)


def wait_for_state(turn: Turn, job: JobRecord, lost: str) -> None:
    """Have a job wait until its state can be reached; asked again, it makes no new generation."""
    if lost != job.generation.unreachable:
        turn.announce(job.name, "StateUnreachable", f"{job.name}: {lost}")
    job.generation.unreachable = lost
    job.recovery.plan = PlanKind.WAITED
    reason = f"its state cannot be restored: {lost}; {_next_step(turn.state, job)}"
    move_job(turn, job, JobEvent.STATE_UNREACHABLE, reason)
    _note_asked(turn, job)


def may_ask_again(state: State, job: JobRecord, members: list[str]) -> bool:
    """Return whether the answer may be another one by now, or it is time to ask anyway."""
    same = members == job.generation.members and not job.ending.wanted
    asked = same and _connected_holders(state, job) == job.generation.asked_of
    return (
        not asked or f"{TimerKind.RETRY}/{job.id}" not in state.timers or job.name in state.paused
    )


def ask_again(turn: Turn, job: JobRecord, members: list[str]) -> None:
    """Ask again for the state of a generation that was planned and never started."""
    job.generation.members, job.generation.stopped = members, []
    if job.state is not JobState.WAITING_STATE:
        wait_for_state(turn, job, job.generation.unreachable)
    _note_asked(turn, job)
    turn.actions.append(restore_point.choose_step(turn.state, job))


def _note_asked(turn: Turn, job: JobRecord) -> None:
    job.generation.asked_of = _connected_holders(turn.state, job)
    turn.set_timer(f"{TimerKind.RETRY}/{job.id}", _RETRY_NS)


def _connected_holders(state: State, job: JobRecord) -> list[str]:
    return [name for name in job.lineage.holders if state.nodes[name].connected]


def _next_step(state: State, job: JobRecord) -> str:
    anew = (
        "start it"
        if job.lineage.continues and not job.lineage.started
        else "end it and start it again"
    )
    fresh = f"to begin anew, {anew} with --fresh"
    away = [name for name in job.lineage.holders if not state.nodes[name].connected]
    if not away:
        return f"no node that had some of it is away; {fresh}"
    shown = ", ".join(away[:_NAMED_MAX]) + (" …" if len(away) > _NAMED_MAX else "")
    return f"it goes on when what {shown} had can be reached: bring back the node, or {fresh}"
