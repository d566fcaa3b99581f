"""What an agent tells of a job when it connects to the controller."""

from everstep_agent.jobs.job import NodeJob
from everstep_proto.generated import fleet_pb2


def job_on_node(job: NodeJob) -> fleet_pb2.JobOnNode:
    """Return how far the job is here, and whether its launcher is."""
    facts, here = job.facts, job.launcher is not None
    return fleet_pb2.JobOnNode(
        job=facts.job,
        generation=max(job.vault.fence, facts.stopped),
        launcher=here,
        planned_generation=facts.own.planned,
        job_id=facts.job_id if here else 0,
    )
