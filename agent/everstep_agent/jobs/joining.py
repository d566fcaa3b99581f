"""A launcher comes, or comes back: it is taken in, and told what it has missed."""

from everstep_agent.jobs.facts import token_hash
from everstep_agent.jobs.job import NodeJob
from everstep_agent.jobs.parties import Launcher
from everstep_agent.jobs.processes import Peer, identify
from everstep_agent.jobs.records import joined_again_record, start_message
from everstep_common import trainer_messages as messages


def take_in(job: NodeJob, request: messages.Join, peer: Peer, launcher: Launcher) -> None:
    """Have a launcher that may for the job's."""
    facts = job.facts
    if facts.ended and (facts.launcher is None or facts.launcher.pid != peer.pid):
        facts.ended, facts.past = False, True
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
        launcher.tell(messages.End(facts.succeeded, "the job ended while the agent was away"))
        return
    job.storage.join(request, peer, lambda: job.launcher is launcher, job.notice)
    job.waiting.go_on()
    _tell_missed(job, request, launcher)


def _tell_missed(job: NodeJob, request: messages.Join, launcher: Launcher) -> None:
    facts, plan = job.facts, job.facts.plan
    if facts.stop_ordered > facts.stopped:
        launcher.tell(messages.Stop(facts.stop_ordered, 0.0, "ordered while it was away"))
    elif plan.generation > max(request.running_generation, facts.stopped):
        launcher.tell(start_message(plan, "ordered while the launcher was away"))
    else:
        job.alone.back()


def join_again(job: NodeJob) -> None:
    """Say once more that the launcher takes part: the controller has forgotten it."""
    if job.launcher and job.request and not job.facts.ended:
        seen = job.storage.files.seen
        job.desk.outlet.record(joined_again_record(job.request, job.facts, seen))
