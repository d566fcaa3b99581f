"""A launcher comes, or comes back: it is taken in, and told what it has missed."""

from everstep_agent.ipc.peer import Peer
from everstep_agent.jobs import identity
from everstep_agent.jobs.facts import token_hash
from everstep_agent.jobs.job import NodeJob
from everstep_agent.jobs.parties import Launcher
from everstep_agent.jobs.processes import identify
from everstep_agent.jobs.records import joined_again_record, start_messages
from everstep_common import trainer_messages as messages


def take_in(job: NodeJob, request: messages.Join, peer: Peer, launcher: Launcher) -> None:
    """Have a launcher that may for the job's."""
    facts = job.facts
    if not identity.comes_back(facts, request, peer):
        facts.job_id = request.job_id or 0
        if facts.ended:
            facts.ended, facts.past = False, True
            job.lessons.forget()  # the next job of the name may run another script
    if facts.owner not in (-1, peer.uid):
        # Nothing of one user's job may reach the next one's, whatever its generations are.
        job.forget_past()
        job.storage.forget()
    facts.uid = facts.owner = peer.uid
    facts.token_sha256 = token_hash(request.token)
    facts.free_port, facts.launcher = request.free_port, identify(peer.pid)
    job.vault.uid = peer.uid
    job.vault.spare_slots = int(request.storage is not None)
    job.launcher, job.request, job.reproach = launcher, request, ""
    job.save()
    launcher.tell(messages.Joined(job.desk.site.node))
    if facts.ended:
        reason = facts.end_reason or "no reason was told"
        sentence = f"it ended while this launcher was away ({reason})"
        launcher.tell(messages.End(facts.succeeded, sentence))
        return
    identity.tell(job)
    job.storage.join(request, peer, lambda: job.launcher is launcher, job.notice)
    job.waiting.go_on()
    job.lessons.tell(launcher, request)
    _tell_missed(job, request, launcher)


def _tell_missed(job: NodeJob, request: messages.Join, launcher: Launcher) -> None:
    facts, plan = job.facts, job.facts.plan
    if facts.stop_ordered > facts.stopped:
        launcher.tell(messages.Stop(facts.stop_ordered, 0.0, "ordered while it was away"))
    elif plan.generation > max(request.running_generation, facts.stopped):
        for message in start_messages(plan, "ordered while the launcher was away", request):
            launcher.tell(message)
    else:
        job.alone.back()


def join_again(job: NodeJob) -> None:
    """Say once more that the launcher takes part: the controller has forgotten it."""
    if job.launcher and job.request and not job.facts.ended:
        seen = job.storage.files.listing
        job.desk.outlet.record(joined_again_record(job.request, job.facts, seen))
