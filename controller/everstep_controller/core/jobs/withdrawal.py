"""Withdrawal of a stop: a generation that trained on behind a cut is kept when the cut heals.

Its members were lost or doubtful when it was to be stopped, so none has heard of that. When all of
them are back, none has lost a rank, no other generation has begun, and they have made newer steps,
the stop is withdrawn. Until then they are told nothing that would end it, for a while.
"""

from everstep_controller.core.events import JobProgressed
from everstep_controller.core.fleet.incidents import open_incident
from everstep_controller.core.jobs.lifecycle import JobEvent
from everstep_controller.core.jobs.orders import withdrawal_pending
from everstep_controller.core.jobs.transition import move_job
from everstep_controller.core.model.job import Cause, JobRecord, JobState, StepsBehind
from everstep_controller.core.model.state import State
from everstep_controller.core.registry import Timers, job_timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# So many rows of steps are kept until all members are heard: more is a job that goes back.
_ROWS_MAX = 10_000


def keep_steps(turn: Turn, job: JobRecord, event: JobProgressed) -> bool:
    """Keep what members tell of steps made behind a cut; return whether that may still count."""
    if event.generation != job.generation.number or not withdrawal_pending(turn.state, job):
        return False
    if len(job.generation.made_behind) < _ROWS_MAX:
        job.generation.made_behind.append(
            StepsBehind(
                event.first_step,
                event.end_ns,
                event.stall_ns,
                event.recoverable_step,
                event.snapshots_skipped,
                event.pauses,
            )
        )
    turn.mark_job(job.id)
    return True


def _kept_steps(job: JobRecord) -> list[JobProgressed]:
    """Return the steps that were made behind a cut, and keep them no longer."""
    made, job.generation.made_behind = job.generation.made_behind, []
    return [
        JobProgressed(
            job=job.id,
            generation=job.generation.number,
            first_step=one.first_step,
            end_ns=one.end_ns,
            stall_ns=one.stall_ns,
            recoverable_step=one.recoverable_step,
            snapshots_skipped=one.snapshots_skipped,
            pauses=one.pauses,
        )
        for one in made
    ]


def reconcile_job(turn: Reconciliation, job: JobRecord) -> list[JobProgressed]:
    """Begin to wait for the members of a stopped generation, or end that wait.

    Return the steps that count from now on, of a generation whose stop is withdrawn.
    """
    timer = f"{TimerKind.WITHDRAW}/{job.id}"
    if TimerKind.WITHDRAW in job.news.due or (
        withdrawal_pending(turn.state, job) and not _may(job)
    ):
        _give_up(turn, job)
    elif _may(job) and not job.generation.given_up and _heard(turn.state, job):
        if timer not in turn.state.timers:
            turn.set_timer(timer, turn.state.settings.answer_timeout_ns)
        if job.generation.made_behind and _heard(turn.state, job) == len(job.generation.members):
            _withdraw(turn, job)
            return _kept_steps(job)
    return []


def _may(job: JobRecord) -> bool:
    """Return whether nobody has carried out a stop, and nothing else speaks against going on."""
    generation = job.generation
    return (
        job.state is JobState.WAITING_CAPACITY
        and generation.cause is Cause.NODE
        and bool(generation.phases)
        and all(name in generation.fenced for name in generation.members)
        and all(name in job.launchers for name in generation.members)
        and not any(one.exit.generation == generation.number for one in job.recovery.deaths)
        and not (job.ending.wanted or generation.unreachable or generation.asked_rollback)
    )


def _heard(state: State, job: JobRecord) -> int:
    """Return how many members are heard."""
    nodes = (state.nodes[name] for name in job.generation.members)
    return sum(node.liveness.connected and not node.unreachable for node in nodes)


def _give_up(turn: Reconciliation, job: JobRecord) -> None:
    """Have members that are back stop what they run, as was decided."""
    turn.drop_timer(f"{TimerKind.WITHDRAW}/{job.id}")
    job.generation.given_up = True
    job.generation.made_behind.clear()
    nodes = turn.state.nodes
    turn.unsent.nodes.update(
        name for name in job.launchers if name in nodes and nodes[name].liveness.connected
    )


def _withdraw(turn: Reconciliation, job: JobRecord) -> None:
    turn.drop_timer(f"{TimerKind.WITHDRAW}/{job.id}")
    generation, incident = job.generation, open_incident(turn.state, job)
    generation.cause = None
    generation.stopped.clear()
    generation.fenced.clear()
    for name in generation.members:
        job.launchers[name].stale_generation = 0
    if incident is not None:
        incident.over_ns, job.recovery.plan = turn.now_ns, None
        job.ledger.withdraw_fault(incident.id, turn.now_ns)
    reason = "its ranks made steps behind a cut that has healed; its stop is withdrawn"
    move_job(turn, job, JobEvent.WITHDRAWN, reason)


TIMERS: Timers = job_timers(TimerKind.WITHDRAW)
