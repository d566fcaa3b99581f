"""Whether a job that runs on fewer nodes than it wants could run on more, and on how many."""

from everstep_controller.core import orders, planning
from everstep_controller.core.state import JobRecord, JobState, NodeRecord, State
from everstep_controller.core.turn import Turn


def may_grow(turn: Turn, job: JobRecord) -> bool:
    """Return whether nodes wait that a running job wants; without snapshots it would lose all."""
    return (
        job.state is JobState.RUNNING
        and job.reform
        and len(job.members) + job.replica_nodes <= min(job.nodes_max, len(job.launchers))
        and not (job.planned or job.done or job.closing or job.ending)
        and not turn.paused(job.name)
        and orders.has_state(job)
        and size(turn.state, job) > len(job.members)
    )


def size(state: State, job: JobRecord) -> int:
    """Return on how many nodes the job could run: whole replicas of its model."""
    more = min(job.nodes_max - len(job.members), len(_waiting(state, job)))
    return len(job.members) + more - more % job.replica_nodes


def _waiting(state: State, job: JobRecord) -> list[NodeRecord]:
    members = frozenset(job.members)
    able = planning.candidates(state, job)
    return [node for node in able if node.name not in members and not node.deferred]
