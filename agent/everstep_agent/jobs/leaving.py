"""A launcher goes: what its job still has here, and who may come next."""

from everstep_agent.jobs.job import NodeJob


def release_launcher(job: NodeJob) -> None:
    """The launcher went as it was told: whoever comes next may be another user."""
    facts = job.facts
    job.launcher = None
    facts.launcher = facts.promised = None
    job.stand_by(None)
    if facts.past:  # nothing has come of its job: what is kept is of the one before
        facts.ended, facts.past = True, False
    if job.over:
        vacate(job)
    job.save()


def vacate(job: NodeJob) -> None:
    """Launcher and ranks are gone: the next launcher is checked by the controller alone."""
    facts = job.facts
    facts.launcher, facts.processes, facts.promised = None, (), None
    job.waiting.over()
    job.stand_by(None)
    job.vault.release_idle_memory()
    facts.uid, facts.token_sha256 = -1, ""
    job.save()
