"""How a job ends: at once, or after its last step is in storage."""

from everstep_controller.core import orders
from everstep_controller.core.events import BreakpointReached
from everstep_controller.core.job_lifecycle import JobEvent
from everstep_controller.core.moving import move
from everstep_controller.core.state import JobRecord, JobState
from everstep_controller.core.turn import Turn


def close(turn: Turn, job: JobRecord, reason: str) -> None:
    """End a job, after its last step is in storage if it has any: agents persist what is named."""
    timer = f"breakpoint/{job.name}"
    waits = job.storage is not None and job.members and job.recoverable_step is not None
    if not waits or job.breakpoint_over:
        turn.drop_timer(timer)
        over(turn, job, succeeded=False, reason=job.closing or reason)
    elif not job.closing:
        job.closing = reason
        turn.set_timer(timer, turn.state.settings.breakpoint_ns)
        message = f"{job.name} ends when its last step is in storage: {reason}"
        turn.announce(job.name, "JobClosing", message)


def breakpoint_reached(turn: Turn, event: BreakpointReached) -> None:
    """The last step of a job that ends is in storage, or will not come there."""
    job = turn.state.jobs.get(event.job)
    if job is not None and _closing(job) and event.generation == job.generation:
        turn.announce(job.name, "BreakpointReached", f"{job.name}: {event.message}")
        _end_closed(turn, job)


def breakpoint_overdue(turn: Turn, name: str) -> None:
    """The last step of a job that ends has not come to storage in time."""
    job = turn.state.jobs.get(name)
    if job is not None and _closing(job):
        waited_s = turn.state.settings.breakpoint_ns // 1_000_000_000
        message = f"{name}: its last step was not in storage after {waited_s} s, it ends without"
        turn.announce(name, "BreakpointMissed", message)
        _end_closed(turn, job)


def _closing(job: JobRecord) -> bool:
    return bool(job.closing) and job.state is not JobState.ENDED


def _end_closed(turn: Turn, job: JobRecord) -> None:
    job.breakpoint_over = True
    close(turn, job, job.closing)


def over(turn: Turn, job: JobRecord, *, succeeded: bool, reason: str) -> None:
    """End a job: tell its launchers, close its ledger."""
    job.succeeded = succeeded
    move(turn, job, JobEvent.OVER, reason)
    job.ledger.end(turn.now_ns)
    turn.drop_timer(f"forming/{job.name}")
    turn.set_timer(f"forget/{job.name}", turn.state.settings.job_retention_ns)
    involved = dict.fromkeys([*job.launchers, *job.holders])
    turn.actions.extend(orders.end(job, node) for node in involved)
