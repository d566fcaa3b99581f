"""Stalled jobs: ranks that live and make no steps are shown, and restarted where that is wanted.

What a rank does between two steps is not known here: it may wait for ever for another one, or
evaluate. So a long silence is a state that people see, and a fault only after the time that an
operator has set for it. A generation that has not made its first steps is not judged.
"""

from everstep_controller.core.jobs import incidents, transition
from everstep_controller.core.jobs.lifecycle import JobEvent
from everstep_controller.core.model.job import Cause, JobRecord, JobState
from everstep_controller.core.timers import TimerKind
from everstep_controller.core.turn import Turn

_S = 1_000_000_000

# Evaluations and checkpoints come again: what took as long before is no news.
_LONGEST_TIMES = 3

# How soon a job is looked at again that would be restarted now, were automation not paused.
_ASKED_AGAIN_NS = 10 * _S


def watch_steps(turn: Turn, job: JobRecord) -> None:
    """Steps were made: look again when there should have been another."""
    timer = f"{TimerKind.STALLED}/{job.id}"
    if turn.state.settings.stalled_ns and timer not in turn.state.timers and job.ledger.steps:
        turn.set_timer(timer, _patience_ns(turn, job))


def controller_started(turn: Turn) -> None:
    """Judge nothing by steps that nobody was there to hear of, until the agents have told them."""
    for job_id in turn.state.jobs:
        if f"{TimerKind.STALLED}/{job_id}" in turn.state.timers:
            turn.set_timer(f"{TimerKind.STALLED}/{job_id}", turn.state.settings.restart_grace_ns)


def stall_due(turn: Turn, job_id: str) -> None:
    """See whether a step was made in the meantime."""
    job = turn.state.jobs.get(job_id)
    if job is None or not job.ledger.steps:
        return
    since_ns = job.ledger.steps[-1].end_ns
    still_ns = turn.now_ns - since_ns
    restart_ns = turn.state.settings.stalled_restart_ns
    if job.state is JobState.RUNNING:
        if still_ns < _patience_ns(turn, job):
            turn.set_timer(f"{TimerKind.STALLED}/{job_id}", _patience_ns(turn, job) - still_ns)
            return
        transition.move_job(turn, job, JobEvent.STALLED, _sentence(job, still_ns))
    if job.state is not JobState.STALLED or not restart_ns:
        return
    wait_ns = max(restart_ns - still_ns, _ASKED_AGAIN_NS if turn.paused(job.name) else 0)
    if wait_ns > 0:
        turn.set_timer(f"{TimerKind.STALLED}/{job_id}", wait_ns)
        return
    message = f"no rank of {job.name} has ended, and none makes steps: {_sentence(job, still_ns)}"
    incidents.record_fault(turn, job, since_ns, Cause.STALLED, "", message)


def _patience_ns(turn: Turn, job: JobRecord) -> int:
    longest_ns = max(step.end_ns - step.start_ns for step in job.ledger.steps)
    return max(turn.state.settings.stalled_ns, _LONGEST_TIMES * longest_ns)


def _sentence(job: JobRecord, still_ns: int) -> str:
    last = job.ledger.steps[-1]
    took_s = (last.end_ns - last.start_ns) / _S
    return f"no step for {still_ns // _S} s since step {last.step}, which took {took_s:.2g} s"
