"""An operator takes a planned restart back: the job goes on as it is, unless more is planned."""

from everstep_controller.core import outlook
from everstep_controller.core.events import RestartCancelled
from everstep_controller.core.job_lifecycle import ACTIVE
from everstep_controller.core.state import JobRecord, JobState, State
from everstep_controller.core.turn import Turn


def problem_with(state: State, job: JobRecord) -> str:
    """Return why no restart of a job can be taken back, in one sentence; empty when one can."""
    wish = job.planned
    if job.state is JobState.ENDED or job.done:
        return f"{job.name} has ended; nothing of it is planned any more"
    if wish is None:
        became = f"'everstep events --subject {job.name}' tells what became of one"
        return f"no restart of {job.name} is planned; {became}"
    if wish.kind != "restart":
        undo = outlook.undo(state, job, wish)
        return f"nobody ordered a restart of {job.name}, but {wish.reason}; to undo that: {undo}"
    if job.state not in ACTIVE:
        return f"it is too late: {job.name} is {job.state.value}, and starts anew as it is"
    return ""


def restart_cancelled(turn: Turn, event: RestartCancelled) -> None:
    """Forget the restart. What else is wanted of the job, a drain perhaps, is planned anew."""
    job = turn.state.jobs.get(event.job)
    if job is None or job.planned is None or problem_with(turn.state, job):
        return
    wish, job.planned = job.planned, None
    turn.drop_timer(f"planned/{job.name}")
    why = f": {event.reason}" if event.reason else ""
    turn.announce(
        job.name,
        "RestartCancelled",
        f"{event.operator} took back the restart of {job.name} that {wish.by} had ordered "
        f"({wish.reason}){why}",
    )
