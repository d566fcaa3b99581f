"""Launchers that come back after their job's end, told so, whatever goes by its name by now.

A job has a name, and a number that tells it from the jobs of this name before and after it. Its
launchers learn the number, and say it again whenever they come back.
"""

from collections.abc import Iterable

from everstep_controller.core import end_orders
from everstep_controller.core.events import LauncherJoined
from everstep_controller.core.facts import JobOnNode
from everstep_controller.core.state import EndedJob, JobRecord, JobState, State
from everstep_controller.core.turn import Turn

# So many ends are remembered of one name.
_ENDS_MAX = 8


def number_for(turn: Turn, event: LauncherJoined, ended: JobRecord | None) -> int:
    """Return the number of a new job; one that runs already, and is not known here, has its own."""
    if 0 < event.job_id <= turn.now_ns:
        return event.job_id
    return max(turn.now_ns, ended.job_id + 1 if ended is not None else 0)


def ends_before(ended: JobRecord | None) -> list[EndedJob]:
    """Return how the jobs of a name have ended before the new one."""
    if ended is None:
        return []
    end = EndedJob(ended.job_id, ended.succeeded, ended.reason)
    return [*ended.ends_before, end][-_ENDS_MAX:]


def number_all(state: State) -> None:
    """Give a number to jobs that were written down before jobs had one."""
    for job in state.jobs.values():
        job.job_id = job.job_id or job.created_ns


def is_over(job: JobRecord, job_id: int) -> bool:
    """Return whether the job of this number and name is over.

    One with a higher number than is known here is not: this journal is older than it.
    """
    if not job_id:
        return False
    return job_id < job.job_id or (job_id == job.job_id and job.state is JobState.ENDED)


def tell(turn: Turn, job: JobRecord, node: str, job_id: int) -> None:
    """Tell a launcher that its job is over; what the node holds of it is kept if it is wanted."""
    order = end_orders.end_of(job, node, job_id)
    turn.announce(job.name, "LauncherLate", f"the launcher on {node} is late: {order.reason}")
    turn.actions.append(order)
    if job.state is not JobState.ENDED and node in job.holders:
        turn.actions.append(end_orders.keep(job, node))


def node_back(turn: Turn, node: str, seen: Iterable[JobOnNode]) -> None:
    """Tell the launchers of a node that was cut off whose jobs have ended meanwhile."""
    for on_node in seen:
        job = turn.state.jobs.get(on_node.job)
        if job is not None and is_over(job, on_node.job_id):
            tell(turn, job, node, on_node.job_id)
