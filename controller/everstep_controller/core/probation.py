"""States that a job crashes from again and again: the second time an older one is restored."""

from collections import Counter

from everstep_controller.core.facts import StepKey
from everstep_controller.core.state import JobRecord
from everstep_controller.core.turn import Turn

# The first crash may have had any cause; a second one from the same state speaks against the state.
CRASHES = 2


def avoided(job: JobRecord) -> tuple[StepKey, ...]:
    """Return the states that are restored only when there is no other."""
    crashes = Counter(job.crashed_from)
    crashed = {key for key, count in crashes.items() if count >= CRASHES}
    return tuple(sorted(crashed | set(job.spoiled)))


def on_probation(job: JobRecord, probation_steps: int) -> bool:
    """Return whether the job has not yet made enough steps since it was restored."""
    if job.restored is None or job.last_step is None:
        return False
    return job.last_step - job.restored[1] < probation_steps


def judge(turn: Turn, job: JobRecord) -> None:
    """Look, once, at how the generation ended that is to be followed by a new one.

    Only a fault of a training process says anything about the state: what a node, a launcher or an
    operator did would have happened with every state.
    """
    if job.judged_generation == job.generation:
        return
    job.judged_generation = job.generation
    # What a recovery has cut off cannot be chosen any more.
    on_branch = [key for key in job.crashed_from if any(p.has(*key) for p in job.branch)]
    job.crashed_from = on_branch
    if job.cause != "process" or job.restored is None:
        return
    if not on_probation(job, turn.state.settings.probation_steps):
        return
    job.crashed_from.append(job.restored)
    if job.crashed_from.count(job.restored) == CRASHES:
        message = (
            f"{job.name} crashed twice within {turn.state.settings.probation_steps} steps of step "
            f"{job.restored[1]}: it goes on from an older one if there is any"
        )
        turn.announce(job.name, "StateAvoided", message)
