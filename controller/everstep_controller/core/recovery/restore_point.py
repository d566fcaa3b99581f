"""Restore point: the question to the catalogue, and the states that are restored only at need."""

from collections import Counter

from everstep_controller.core.actions import (
    ChooseRecoveryStep,
)
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.lineage import BranchPoint, StepKey
from everstep_controller.core.model.state import State
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


def note_crash(turn: Turn, job: JobRecord) -> None:
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


def choose_step(state: State, job: JobRecord) -> ChooseRecoveryStep:
    """Return the question to the catalogue."""
    alive = {name: last for name, last in job.holders.items() if not state.nodes[name].gone}
    newest = max(alive.values(), default=0)
    return ChooseRecoveryStep(
        id=f"{job.name}/g{job.generation}/choose",
        job=job.name,
        generation=job.generation,
        settled_generation=newest,
        holders=tuple(name for name, last in alive.items() if last == newest),
        others=tuple(name for name, last in alive.items() if last != newest),
        branch=tuple(job.branch),
        expected=has_state(job),
        reason=job.reason,
        stored=() if job.latest is None else (job.latest,),
        avoided=avoided(job),
        foreign_generation=job.foreign_generation,
    )


def has_state(job: JobRecord) -> bool:
    """Return whether snapshots of the job were ever made."""
    return job.recoverable_step is not None or any(map(_snapshotted, job.branch))


def _snapshotted(point: BranchPoint) -> bool:
    return point.through_step is not None or bool(point.layouts or point.shards)
