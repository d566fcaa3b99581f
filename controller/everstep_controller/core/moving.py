"""A job's way through its lifecycle table, told to people, and the ledger's word for a phase."""

from everstep_controller.core.job_lifecycle import JobEvent, step
from everstep_controller.core.state import JobRecord
from everstep_controller.core.turn import Turn

# What people or the controller want of a healthy job: no fault of anything. "user": who submitted
# it, or the scheduler for somebody else, sent its launchers away.
PLANNED_CAUSES = frozenset({"operator", "growth", "user"})


def move(turn: Turn, job: JobRecord, event: JobEvent, reason: str) -> None:
    """Take a job through its lifecycle table."""
    before = job.state
    job.state = step(before, event)
    job.reason = reason
    if job.state is not before:
        turn.jobs_changed.add(job.name)
        job.since_ns = turn.now_ns
        turn.announce(
            job.name,
            "Job" + job.state.value.title().replace("_", ""),
            f"{job.name} is {job.state.value}: {reason}",
        )


def category(job: JobRecord, name: str) -> str:
    """Return the ledger category of a phase: first launches and planned work have their own."""
    incident = job.incident
    if incident is not None and incident.cause in PLANNED_CAUSES:
        return "planned"
    if incident is not None:
        return name
    first = {
        "inc.capacity": "init.queue",
        "inc.schedule": "init.queue",
        "inc.env": "init.env",
        "inc.init": "init.proc",
        "inc.restore": "init.restore",
    }
    return first.get(name, name)
