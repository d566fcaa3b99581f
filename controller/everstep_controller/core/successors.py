"""Launchers that come while the job of their name still ends: they wait, and begin the next one."""

from everstep_controller.core import continuing, end_orders, orders
from everstep_controller.core.events import LauncherJoined
from everstep_controller.core.state import JobRecord, JobState
from everstep_controller.core.turn import Turn

# Besides the time that the last step of a job may take to storage: agents kill what does not stop
# within seconds, and a node that is silent counts as lost within a quarter of a minute.
_STOP_NS = 60_000_000_000


def is_next(job: JobRecord, event: LauncherJoined) -> bool:
    """Return whether a launcher is not of a job that is ending, but of the next one of its name."""
    ends = (job.ending or job.closing or job.done) and event.job_id != job.job_id
    if not ends or job.state is JobState.ENDED or not continuing.same_owner(job, event):
        return False
    return event.origin.node not in job.launchers and not event.running_generation


def wait(turn: Turn, job: JobRecord, event: LauncherJoined) -> None:
    """Have a launcher wait for the end of the job before its own."""
    node = event.origin.node
    if not job.successors:
        turn.set_timer(_timer(job), turn.state.settings.breakpoint_ns + _STOP_NS)
    job.successors[node] = event
    order = end_orders.wait_for_end(job, node)
    turn.announce(job.name, "LauncherWaits", f"the launcher on {node} {order.reason}")
    turn.actions.append(order)


def left(turn: Turn, job: JobRecord, node: str) -> bool:
    """A launcher is gone; return whether it was one that waited."""
    waited = job.successors.pop(node, None) is not None
    if waited and not job.successors:
        turn.drop_timer(_timer(job))
    return waited


def overdue(turn: Turn, name: str) -> None:
    """A job has not come to its end in time: whoever waits for it is told so."""
    job = turn.state.jobs.get(name)
    if job is None:
        return
    for node in job.successors:
        reason = (
            f"the job of this name before it has not ended: {end_orders.what_lasts(job)}; see "
            f"'everstep job {name}', or choose another name with --job"
        )
        turn.state.refusals[f"{name}@{node}"] = reason
        turn.actions.append(orders.refuse(name, node, reason))
        turn.announce(name, "LauncherRefused", f"launcher on {node} refused: {reason}")
    job.successors.clear()


def released(turn: Turn, job: JobRecord) -> None:
    """A job is over: after this event, those that waited join the next one."""
    turn.joining += job.successors.values()
    job.successors = {}
    turn.drop_timer(_timer(job))


def _timer(job: JobRecord) -> str:
    return f"next/{job.name}"
