"""Growth: whether a job that runs on fewer nodes than it wants could run on more, and how many."""

from everstep_controller.core.jobs import restore_point
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import State
from everstep_controller.core.recovery import planning
from everstep_controller.core.turn import Turn


def may_grow(turn: Turn, job: JobRecord) -> bool:
    """Return whether nodes wait that a running job wants; without snapshots it would lose all."""
    return (
        job.state is JobState.RUNNING
        and job.spec.reform
        and len(job.generation.members) + job.spec.replica_nodes
        <= min(job.spec.nodes_max, len(job.launchers))
        and not (job.planned or job.ending.wanted)
        and not turn.paused(job.name)
        and restore_point.has_state(job)
        and grown_size(turn.state, job) > len(job.generation.members)
    )


def grown_size(state: State, job: JobRecord) -> int:
    """Return on how many nodes the job could run: whole replicas of its model."""
    more = min(job.spec.nodes_max - len(job.generation.members), len(_waiting(state, job)))
    return len(job.generation.members) + more - more % job.spec.replica_nodes


def _waiting(state: State, job: JobRecord) -> list[NodeRecord]:
    members = frozenset(job.generation.members)
    able = planning.candidates(state, job)
    return [node for node in able if node.name not in members and not node.deferred]
