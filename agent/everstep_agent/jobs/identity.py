"""Which job of its name a launcher is of: one that comes back after its job's end is told so."""

from everstep_agent.ipc.peer import Peer
from everstep_agent.jobs.facts import JobFacts
from everstep_agent.jobs.job import NodeJob
from everstep_common.trainer_messages import Identified, Join
from everstep_proto.generated import fleet_pb2


def late_refusal(facts: JobFacts, request: Join) -> str | None:
    """Return why a launcher comes too late to a node where the next job of its name has been."""
    if not request.job_id or request.job_id >= facts.job_id:
        return None
    return (
        "its job ended while this launcher was away, and another job has the name "
        f"{facts.job} since; see 'everstep job {facts.job}'"
    )


def comes_back(facts: JobFacts, request: Join, peer: Peer) -> bool:
    """Return whether a launcher is of the job that the facts are about, and not of the next one."""
    before = facts.launcher
    same = bool(request.job_id) and request.job_id == facts.job_id
    return same or (before is not None and before.pid == peer.pid)


def learn(job: NodeJob, job_id: int) -> None:
    """Take the controller's word for which job it is, and tell a launcher that understands it."""
    if job_id and job_id != job.facts.job_id:
        job.facts.job_id = job_id
        job.save()
    tell(job)


def tell(job: NodeJob) -> None:
    """Tell the launcher which job it is of, if that is known and news to it."""
    request, job_id = job.request, job.facts.job_id
    if job.launcher and request is not None and request.job_id is not None and job_id:
        job.launcher.tell(Identified(job_id))


def is_meant(facts: JobFacts, end: fleet_pb2.EndJob) -> bool:
    """Return whether an end is that of the job that is here, not of one of its name before."""
    return not end.job_id or end.job_id == facts.job_id
