"""The steps of a script that never imports everstep: read from its output by the launcher."""

from everstep_agent.jobs.job import NodeJob
from everstep_common.trainer_messages import Progress, StepSeen


def step_seen(job: NodeJob, message: StepSeen) -> None:
    """Count a step of the whole job; ranks that have called in tell their steps themselves."""
    generation = message.generation
    if generation != job.facts.plan.generation or generation <= job.facts.stopped:
        return
    if any(attached == generation for attached, _ in job.attached):
        return
    at_boot_ns = min(message.at_boot_ns, job.desk.boot_ns())
    job.progress.seen(Progress(message.step, at_boot_ns, stall_ns=0))
    job.freshness.reached(message.step)
