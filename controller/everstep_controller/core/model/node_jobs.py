"""Index from each node to its jobs, so that no event has to look at all jobs."""

from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import State


def note_offer(state: State, node: str, job: JobRecord) -> None:
    """Remember that a launcher offers a node to a job; what the node has left is forgotten."""
    record = state.nodes[node]
    record.jobs = [one.id for one in jobs_of_node(state, record) if one.id != job.id]
    record.jobs.append(job.id)


def jobs_of_node(state: State, node: NodeRecord) -> list[JobRecord]:
    """Return the jobs that a node is a member of, or waits to be."""
    known = [state.jobs[job_id] for job_id in node.jobs if job_id in state.jobs]
    return [job for job in known if _there(job, node.name)]


def _there(job: JobRecord, node: str) -> bool:
    return node in job.launchers or node in job.generation.members
