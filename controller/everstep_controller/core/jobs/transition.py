"""Transition of a job through its lifecycle table: the state, its effects, the announcement."""

from collections.abc import Callable, Mapping

from everstep_controller.core.accounting.categories import Category, category_of
from everstep_controller.core.fleet.incidents import open_incident
from everstep_controller.core.jobs import devices, identity, orders, restore_point
from everstep_controller.core.jobs.lifecycle import (
    BEGINNING,
    WAITS,
    JobEffect,
    JobEvent,
    step,
)
from everstep_controller.core.model.hang import Hang, stands_with
from everstep_controller.core.model.job import AwaitedAnswers, JobRecord, JobState
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import budgets
from everstep_controller.core.turn import Reconciliation, TimerKind


def move_job(turn: Reconciliation, job: JobRecord, event: JobEvent, reason: str) -> None:
    """Take a job through its lifecycle table. Raises TransitionRefusedError."""
    found = step(job.state, event)
    if found is None:
        return
    before, is_news = job.state, reason != job.reason
    job.state, job.reason = found.to, reason
    if job.state is not before:
        _note_stall(turn, job, before)
        turn.mark_job(job.id, moved=True)
        budgets.mark_deferred_members(turn, job)
        if (before in devices.OCCUPYING) != (job.state in devices.OCCUPYING):
            devices.mark_sharing_jobs(turn, job, job.generation.members)
        job.since_ns = turn.now_ns
        turn.announce(
            job.name,
            "Job" + job.state.value.title().replace("_", ""),
            f"{job.name} is {job.state.value}: {reason}",
        )
    if job.state is not before or event is JobEvent.PLANNED:
        _await_answers(turn, job)
    if found.stage is not None:
        _enter_stage(turn, job, category(turn.state, job, found.stage))
    for effect in found.effects:
        if effect is not JobEffect.HOLD_LAUNCHERS or is_news:
            _EFFECTS[effect](turn, job)


def _note_stall(turn: Reconciliation, job: JobRecord, before: JobState) -> None:
    """Begin a stall, or remember how long the one was of a job that goes on by itself."""
    if before is JobState.WARMING and job.state is JobState.RUNNING:
        warmup_ns = turn.now_ns - job.since_ns
        job.recovery.longest_warmup_ns = max(job.recovery.longest_warmup_ns, warmup_ns)
    if before is JobState.STALLED and job.state is JobState.RUNNING and not told_late(job):
        stood_ns = turn.now_ns - job.hang.onset_ns
        remember_stand(job, stood_ns, turn.now_ns)
    job.hang = Hang()
    if job.state is JobState.STARTING:
        job.generation.began_ns = turn.now_ns
    if job.state in BEGINNING:
        job.hang.onset_ns = job.generation.began_ns
    if job.state is JobState.STALLED:
        stepped = before is JobState.RUNNING and job.ledger.steps
        job.hang.onset_ns = job.ledger.steps[-1].end_ns if stepped else turn.now_ns


def remember_stand(job: JobRecord, stood_ns: int, now_ns: int) -> None:
    """Remember for how long a job has stood that goes on by itself, at each place it was seen at.

    One that went on before anybody looked is remembered as of no place. A process that was stopped
    is somebody's hand, and says nothing of what is usual.
    """
    if job.hang.seen is None or not job.hang.seen.stuck:
        known, places = job.recovery.usual_stands, job.hang.places or [""]
        job.recovery.usual_stands = stands_with(known, places, stood_ns, now_ns)


def told_late(job: JobRecord) -> bool:
    """Return whether a step ends a stall that all nodes had made when they said to stand still."""
    told, last = job.generation.still.values(), job.lineage.last_step
    all_stand = len(told) + len(job.generation.finished) >= len(job.generation.members)
    known = [one.step for one in told if one.step is not None]
    return all_stand and last is not None and any(last <= step for step in known)


def category(state: State, job: JobRecord, stage: Category) -> Category:
    """Return where the time of a stage of the job's start goes."""
    incident = open_incident(state, job)
    return category_of(stage, incident.cause if incident else None)


# -------------------------------------------------------------------------------------------------


def _await_answers(turn: Reconciliation, job: JobRecord) -> None:
    """Have the answers looked at for which the state waits, for the first time after half of it."""
    timer, wait = f"{TimerKind.ANSWER}/{job.id}", WAITS[job.state]
    job.awaited = AwaitedAnswers(turn.now_ns)
    if wait.timer is TimerKind.ANSWER:
        turn.set_timer(timer, answer_patience_ns(turn.state, job) // 2)
    else:
        turn.drop_timer(timer)


def answer_patience_ns(state: State, job: JobRecord) -> int:
    """Return how long a node may leave unanswered what a job waits for in its state.

    Where a generation starts, that is an order; how far its ranks come has a time of its own.
    """
    settings = state.settings
    if job.state in (JobState.REPLANNING, JobState.WAITING_STATE):
        return settings.holdings_timeout_ns
    grace_ns = settings.stop_grace_ns if job.state is JobState.STOPPING else 0
    return settings.answer_timeout_ns + grace_ns


def _enter_stage(turn: Reconciliation, job: JobRecord, stage: Category) -> None:
    nodes = len(job.generation.members) or job.spec.nodes_min
    if job.ledger.segments[-1].category != stage or job.ledger.nodes != nodes:
        job.ledger.nodes = nodes
        job.ledger.enter(turn.now_ns, stage)


def _ask_catalogue(turn: Reconciliation, job: JobRecord) -> None:
    turn.order(restore_point.choose_step(turn.state, job))


def _start_members(turn: Reconciliation, job: JobRecord) -> None:
    for member in job.generation.members:
        job.lineage.holders[member] = job.generation.number
    turn.order(*orders.starts(job))


def _stop_members(turn: Reconciliation, job: JobRecord) -> None:
    for member in job.generation.members:
        if member not in job.generation.stopped and member in turn.state.nodes:
            turn.order(orders.stop(turn.state, job, member, job.generation.number))


def _hold_spares(turn: Reconciliation, job: JobRecord) -> None:
    # In the order in which they came: a replay decides the same in the same order.
    members = frozenset(job.generation.members)
    waiting = [name for name in job.launchers if name not in members]
    turn.order(*(orders.hold(turn.state, job, name) for name in waiting))


def _close_ledger(turn: Reconciliation, job: JobRecord) -> None:
    job.ledger.close(turn.now_ns)


def _tell_end(turn: Reconciliation, job: JobRecord) -> None:
    told = {**job.launchers, **job.lineage.holders}
    turn.order(*(orders.end(job, node) for node in told))


_EFFECTS: Mapping[JobEffect, Callable[[Reconciliation, JobRecord], None]] = {
    JobEffect.ASK_CATALOGUE: _ask_catalogue,
    JobEffect.START_MEMBERS: _start_members,
    JobEffect.STOP_MEMBERS: _stop_members,
    JobEffect.HOLD_LAUNCHERS: orders.hold_all,
    JobEffect.HOLD_SPARES: _hold_spares,
    JobEffect.CLOSE_LEDGER: _close_ledger,
    JobEffect.TELL_END: _tell_end,
    JobEffect.RELEASE_NEXT: identity.release_next,
}
