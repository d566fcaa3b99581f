"""Jobs that have ended: their memory before its time, and the job itself when its time is over."""

from everstep_controller.core import end_orders
from everstep_controller.core.events import OperatorForgotJob
from everstep_controller.core.state import JobState
from everstep_controller.core.turn import Turn


def job_forgotten(turn: Turn, event: OperatorForgotJob) -> None:
    """Have every holder drop the job's memory; one that is away is told when it is back."""
    job = turn.state.jobs.get(event.job)
    if job is None or job.state is not JobState.ENDED:
        return
    involved = list(dict.fromkeys([*job.launchers, *job.holders]))
    if not job.forgotten_by:
        job.forgotten_by = event.operator
        nodes = "1 node" if len(involved) == 1 else f"{len(involved)} nodes"
        message = f"{event.operator} has the memory of {job.name} dropped on {nodes}"
        turn.announce(job.name, "JobForgotten", message)
    turn.actions.extend(end_orders.forget(job, node) for node in involved)


def retention_over(turn: Turn, name: str) -> None:
    """Forget a job that ended long ago."""
    turn.state.jobs.pop(name, None)
