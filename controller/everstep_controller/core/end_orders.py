"""Orders about the end of a job, and about what is kept of it."""

from everstep_controller.core.actions import EndJob, ForgetJob, HoldLauncher, KeepJob
from everstep_controller.core.state import EndedJob, JobRecord

# So many nodes are named in a sentence.
_NAMED_MAX = 3


def end(job: JobRecord, node: str) -> EndJob:
    """Return the order to end a job on a node."""
    return EndJob(
        id=f"{job.name}/end/{node}",
        node=node,
        reason=job.reason,
        job=job.name,
        succeeded=job.succeeded,
        unsaved=job.unsaved,
    )


def end_of(job: JobRecord, node: str, job_id: int) -> EndJob:
    """Return the order to end a launcher of a job that ended while it was away."""
    if job_id == job.job_id:
        ended = EndedJob(job_id, job.succeeded, job.reason)
        since = ""
    else:
        unknown = EndedJob(job_id, False, "how, is not known any more")
        ended = next((one for one in job.ends_before if one.job_id == job_id), unknown)
        since = f"; another job has the name {job.name} since, see 'everstep job {job.name}'"
    return EndJob(
        id=f"{job.name}/{job_id}/end/{node}",
        node=node,
        reason=f"it ended while this launcher was away ({ended.reason}){since}",
        job=job.name,
        succeeded=ended.succeeded,
        job_id=job_id,
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


def wait_for_end(job: JobRecord, node: str) -> HoldLauncher:
    """Return the order to let the launcher of the next job wait for the end of this one."""
    return HoldLauncher(
        id=f"{job.name}/next/{node}",
        node=node,
        reason=f"waits for the end of the job of this name before it: {what_lasts(job)}",
        job=job.name,
    )


def what_lasts(job: JobRecord) -> str:
    """Return what a job that is ending still waits for."""
    running = [name for name in job.members if name not in job.stopped and name in job.phases]
    if job.closing and (job.done or not running):
        return "its last step is being brought to storage"
    shown, more = ", ".join(running[:_NAMED_MAX]), len(running) - _NAMED_MAX
    others = f" and {more} more" if more > 0 else ""
    return f"{shown}{others} has still to stop its processes" if running else "it is ending"
