"""End of a job: at once or after its last step is in storage, and when it is forgotten."""

from everstep_common.endings import is_by_user, kept_in_memory
from everstep_controller.core import events
from everstep_controller.core.actions import About, Topic
from everstep_controller.core.events import FinalSaveEnded, OperatorForgotJob
from everstep_controller.core.fleet.incidents import forget_incidents, open_incident
from everstep_controller.core.jobs import orders
from everstep_controller.core.jobs.lifecycle import JobEvent
from everstep_controller.core.jobs.transition import move_job
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.state import State, remove_job
from everstep_controller.core.registry import Handlers, Timers, job_timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# Number of nodes that a sentence names.
_NAMED_MAX = 4

# Timers that a job needs only while it lives.
_OF_LIVING_JOBS = (
    TimerKind.FORMING,
    TimerKind.RETRY,
    TimerKind.BACKOFF,
    TimerKind.FINAL_SAVE,
    TimerKind.ABANDONED,
    TimerKind.UNTOLD,
    TimerKind.ENDING,
    TimerKind.STALLED,
)


def finish_job(turn: Reconciliation, job: JobRecord, reason: str) -> None:
    """End a job whose ranks have all ended well; a fault after its last step costs no more."""
    incident = open_incident(turn.state, job)
    if incident is not None:
        incident.over_ns, job.recovery.plan = turn.now_ns, None
        lasted_s = (turn.now_ns - incident.onset_ns) / 1e9
        message = f"{job.name} has no step left to make, {lasted_s:.2f} s after: {incident.message}"
        turn.announce(job.name, "IncidentOver", message, About(topic=Topic.INCIDENT_OVER))
    job.ending.done = True
    close_job(turn, job, reason)


def close_job(turn: Reconciliation, job: JobRecord, reason: str) -> None:
    """End a job, after its last step is in storage if it has any: agents persist what is named."""
    if job.spec.storage is None or not _has_state(job):
        kept = _kept_in_memory(turn.state, job) if is_by_user(reason) else ""
        if kept:
            # An operator's own words end the reason.
            reason += f" ({kept})" if ": " in reason else f" {kept}"
        end_job(turn, job, succeeded=job.ending.done, reason=reason)
    elif job.state is not JobState.CLOSING:
        job.ending.closing = reason
        turn.set_timer(
            f"{TimerKind.FINAL_SAVE}/{job.id}", turn.state.settings.final_save_timeout_ns
        )
        sentence = f"its last step is being brought to storage: {reason}"
        move_job(turn, job, JobEvent.LAST_STEP_AWAITED, sentence)


def _kept_in_memory(state: State, job: JobRecord) -> str:
    """Return the step that is left of a job that its user has ended, and where, in words."""
    step = job.lineage.recoverable_step
    if step is None or not job.lineage.started:
        return ""
    there = [name for name in job.lineage.holders if state.nodes[name].liveness.connected]
    more = f" and {len(there) - _NAMED_MAX} more" if len(there) > _NAMED_MAX else ""
    nodes = ", ".join(there[:_NAMED_MAX]) + more
    minutes = state.settings.memory_kept_ns / 60e9
    return kept_in_memory(step, nodes, minutes)


def _has_state(job: JobRecord) -> bool:
    """Return whether processes of the job have made anything that may be worth storing."""
    if not job.generation.members or not job.lineage.started:
        return False
    # The word that a step is recoverable may still be on its way when the last process ends.
    return job.lineage.recoverable_step is not None or (
        job.ending.done and job.lineage.last_step is not None
    )


def final_save_ended(turn: Turn, event: FinalSaveEnded) -> None:
    """The last step of a job that ends is in storage, or will not come there."""
    job = turn.state.job(event.job)
    if (
        job is not None
        and job.state is JobState.CLOSING
        and event.generation == job.generation.number
    ):
        turn.announce(job.name, "FinalSaveEnded", f"{job.name}: {event.message}")
        job.news.last_step_missed = event.message if event.missed else ""


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """End a job that need not wait for its last step, or for launchers, any longer."""
    if job.news.forgotten:
        turn.order(*(orders.forget(job, node) for node in _involved(job)))
    if job.state is JobState.CLOSING and job.news.last_step_missed is not None:
        _end_closed(turn, job, job.news.last_step_missed)
    elif job.state is JobState.CLOSING and TimerKind.FINAL_SAVE in job.news.due:
        waited_s = turn.state.settings.final_save_timeout_ns // 1_000_000_000
        missed = f"its last step was not in storage after {waited_s} s"
        turn.announce(job.name, "FinalSaveMissed", f"{job.name}: {missed}, it ends without")
        _end_closed(turn, job, missed)
    _count_launchers(turn, job)


def _end_closed(turn: Reconciliation, job: JobRecord, missed: str) -> None:
    """End it; who reads that it ended well must also read that storage does not have its end."""
    if is_by_user(job.ending.closing):
        kept = _kept_in_memory(turn.state, job)
        stored = f" after step {job.lineage.recoverable_step}, which is in storage"
        job.ending.closing += kept if missed else stored
    if missed:
        job.ending.closing = f"{job.ending.closing}; {missed}"
    if missed and job.ending.done:
        job.ending.unsaved = True
        minutes = turn.state.settings.memory_kept_ns / 60e9
        job.ending.closing += (
            f"; its nodes keep it for {minutes:g} min: see to the storage and start the job again "
            "under its name"
        )
    end_job(turn, job, succeeded=job.ending.done, reason=job.ending.closing)


def _count_launchers(turn: Reconciliation, job: JobRecord) -> None:
    """A job without any launcher does not wait for ever for one to come back."""
    timer = f"{TimerKind.ABANDONED}/{job.id}"
    if job.launchers or job.state is JobState.ENDED:
        turn.drop_timer(timer)
    elif TimerKind.ABANDONED in job.news.due:
        minutes = turn.state.settings.memory_kept_ns / 60e9
        reason = f"all its launchers have been gone for {minutes:g} min"
        end_job(turn, job, succeeded=False, reason=reason)
    elif timer not in turn.state.timers:
        turn.set_timer(timer, turn.state.settings.memory_kept_ns)


def end_replaced(turn: Reconciliation, job: JobRecord) -> None:
    """A job that nobody is left of is begun once more: nodes are not told of its end."""
    job.ending.replaced = True
    how = "again while it was ending" if job.state is JobState.CLOSING else "in another way"
    move_job(turn, job, JobEvent.REPLACED, f"its launchers were gone when it was started {how}")
    for kind in _OF_LIVING_JOBS:
        turn.drop_timer(f"{kind}/{job.id}")


def end_job(turn: Reconciliation, job: JobRecord, *, succeeded: bool, reason: str) -> None:
    """End a job: tell its launchers, close its ledger."""
    job.ending.succeeded = succeeded
    move_job(turn, job, JobEvent.OVER, reason)
    for kind in _OF_LIVING_JOBS:
        turn.drop_timer(f"{kind}/{job.id}")
    turn.set_timer(f"{TimerKind.FORGET}/{job.id}", turn.state.settings.ended_job_retention_ns)


def job_forgotten(turn: Turn, event: OperatorForgotJob) -> None:
    """Have every holder drop the job's memory; one that is away hears it when it is back."""
    job = turn.state.job(event.job)
    if job is None or job.state is not JobState.ENDED or not turn.state.is_current(job):
        return
    involved = _involved(job)
    if not job.ending.forgotten_by:
        job.ending.forgotten_by = event.operator
        nodes = "1 node" if len(involved) == 1 else f"{len(involved)} nodes"
        message = f"{event.operator} has the memory of {job.name} dropped on {nodes}"
        turn.announce(job.name, "JobForgotten", message)
    job.news.forgotten = True


def _involved(job: JobRecord) -> list[str]:
    return list(dict.fromkeys([*job.launchers, *job.lineage.holders]))


def retention_over(turn: Turn, job_id: str) -> None:
    """Forget a job that ended long ago, and its name if no other job has it since."""
    job = turn.state.jobs.get(job_id)
    if job is None:
        return
    forget_incidents(turn.state, job)
    if turn.state.is_current(job):
        del turn.state.names[job.name]
    remove_job(turn.state, job)


HANDLERS: Handlers = {
    events.FinalSaveEnded: final_save_ended,
    events.OperatorForgotJob: job_forgotten,
}
TIMERS: Timers = {
    **job_timers(TimerKind.FINAL_SAVE, TimerKind.ABANDONED),
    TimerKind.FORGET: retention_over,
}
