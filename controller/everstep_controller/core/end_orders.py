"""Orders about the end of a job, and about what is kept of it."""

from everstep_controller.core.actions import EndJob, ForgetJob, KeepJob
from everstep_controller.core.state import JobRecord


def end(job: JobRecord, node: str) -> EndJob:
    """Return the order to end a job on a node."""
    return EndJob(
        id=f"{job.name}/end/{node}",
        node=node,
        reason=job.reason,
        job=job.name,
        succeeded=job.succeeded,
    )


def forget(job: JobRecord, node: str) -> ForgetJob:
    """Return the order to drop what a node keeps of a job that has ended."""
    return ForgetJob(
        id=f"{job.name}/g{job.generation}/forget/{node}",
        node=node,
        reason=f"forgotten by {job.forgotten_by or 'a new job of its name'}",
        job=job.name,
    )


def keep(job: JobRecord, node: str) -> KeepJob:
    """Return the order to keep what a node has of the job whose state this one goes on from."""
    return KeepJob(
        id=f"{job.name}/g{job.generation}/keep/{node}",
        node=node,
        reason=f"the next job of the name {job.name} goes on from it",
        job=job.name,
    )
