"""Restore point: asks for the step to restore, and notes the states that crashed a job before."""

from collections import Counter

from everstep_common.reports import BranchStep, RanksWithoutSnapshot
from everstep_controller.core.actions import ChooseRecoveryStep
from everstep_controller.core.jobs.lifecycle import OVER, STEPPING
from everstep_controller.core.model.agents import AdoptedGeneration
from everstep_controller.core.model.job import Cause, JobRecord
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.snapshots import BranchPoint, StepKey
from everstep_controller.core.model.state import State
from everstep_controller.core.turn import Turn

# The first crash may have had any cause; a second one from the same state speaks against the state.
CRASHES = 2
# What a death says whose rank could not restore the state.
_OF_STATE = "state:"
# Each of them that could write down nothing in storage is bridged by the ones after it.
_BRANCH_TOLD = 16


def avoided(job: JobRecord) -> tuple[StepKey, ...]:
    """Return the states that are restored only when there is no other."""
    crashes = Counter(job.lineage.crashed_from)
    crashed = {key for key, count in crashes.items() if count >= CRASHES}
    return tuple(sorted(crashed | set(job.lineage.spoiled)))


def on_probation(job: JobRecord, probation_steps: int) -> bool:
    """Return whether the job has not yet made enough steps since it was restored."""
    if job.lineage.restored is None or job.lineage.last_step is None:
        return False
    return job.lineage.last_step - job.lineage.restored[1] < probation_steps


def note_crash(turn: Turn, job: JobRecord) -> None:
    """Look at how the generation ended that is now replaced by a new one.

    Only a fault of a training process says anything about the state: what a node, a launcher or an
    operator did would have happened with every state.
    """
    # Steps that a recovery has cut off the branch cannot be chosen any more.
    on_branch = [
        key for key in job.lineage.crashed_from if any(p.has(*key) for p in job.lineage.branch)
    ]
    job.lineage.crashed_from = on_branch
    if job.generation.cause is not Cause.PROCESS or job.lineage.restored is None:
        return
    if _came_from_outside(job):
        return
    if not on_probation(job, turn.state.settings.probation_steps):
        return
    job.lineage.crashed_from.append(job.lineage.restored)
    if job.lineage.crashed_from.count(job.lineage.restored) == CRASHES:
        message = (
            f"{job.name} crashed twice within {turn.state.settings.probation_steps} steps of step "
            f"{job.lineage.restored[1]}: it goes on from an older one if there is any"
        )
        turn.announce(job.name, "StateAvoided", message)


def _came_from_outside(job: JobRecord) -> bool:
    """Return whether the end of a generation would have come with every state."""
    judged = job.recovery.judgements[-1:]
    outside = any(one.outside and one.generation == job.generation.number for one in judged)
    return outside and not any(one.signature.startswith(_OF_STATE) for one in judged)


def choose_step(state: State, job: JobRecord) -> ChooseRecoveryStep:
    """Return the question to the catalogue."""
    holders = job.lineage.holders.items()
    alive = {name: last for name, last in holders if not state.nodes[name].unreachable}
    newest = max(alive.values(), default=0)
    return ChooseRecoveryStep(
        id=f"{job.id}/g{job.generation.number}/choose",
        job=job.id,
        generation=job.generation.number,
        settled_generation=newest,
        holders=tuple(name for name, last in alive.items() if last == newest),
        others=tuple(name for name, last in alive.items() if last != newest),
        branch=tuple(job.lineage.branch),
        expected=has_state(job) and not _was_never_saved(state, job),
        reason=job.reason,
        stored=() if job.lineage.latest is None else (job.lineage.latest,),
        avoided=avoided(job),
        overdue=tuple(n for n in alive if n in job.overdue or job.generation.holdings_overdue),
    )


def has_state(job: JobRecord) -> bool:
    """Return whether snapshots of the job were ever made, or may have been."""
    return job.lineage.adopted is not None or _has_known_state(job)


def _has_known_state(job: JobRecord) -> bool:
    return job.lineage.recoverable_step is not None or any(map(_snapshotted, job.lineage.branch))


def _was_never_saved(state: State, job: JobRecord) -> bool:
    """Return whether all ranks of a generation that the journal has lost were without a snapshot.

    The controller that began it knew of none, and the agents of all its ranks say that none was
    made since. Of an agent that is away nobody knows what it would say by now.
    """
    adopted, lineage = job.lineage.adopted, job.lineage
    if adopted is None or not adopted.world_size or _has_known_state(job):
        return False
    if job.spec.storage is not None or lineage.latest is not None or lineage.stored_doubt:
        return False  # ranks without an agent may have written a step there
    seen = state.generations_seen.get(job.name)
    if seen is not None and seen.number > adopted.number:
        return False
    heard = (one for one in state.nodes.values() if _is_heard(state, one))
    words = (one.jobs.without_snapshot.get(job.id) for one in heard)
    ours = [one for one in words if one is not None and _is_of(one, adopted)]
    return sum(one.ranks for one in ours) == adopted.world_size


def _is_heard(state: State, node: NodeRecord) -> bool:
    return node.liveness.connected and node.identity.welcomed_term == state.term


def _is_of(word: RanksWithoutSnapshot, adopted: AdoptedGeneration) -> bool:
    return (word.generation, word.world_size) == (adopted.number, adopted.world_size)


def branch_told(job: JobRecord) -> tuple[BranchStep, ...]:
    """Return the last steps of the newest generations that the state to restore came from.

    Agents keep them beside what they store, where each generation says on its own which ones were
    before it: so the newest ones are enough.
    """
    if job.spec.storage is None or job.generation.restore_step is None:
        return ()
    newest = job.lineage.branch[-_BRANCH_TOLD - 1 :]
    return tuple(
        BranchStep(point.generation, point.through_step)
        for point in newest
        if point.through_step is not None and point.generation < job.generation.number
    )


def undecided_step(job: JobRecord) -> int | None:
    """Return the newest step of a job of which nobody knows whether it has to be made again.

    None: it is known. A script that is restarted without a snapshot may have one of its own, and
    its first step shows where it goes on.
    """
    decided = job.state in STEPPING or job.state in OVER or has_state(job)
    if decided or not job.ledger.steps or job.generation.restore_step is not None:
        return None
    return job.ledger.steps[-1].step


def _snapshotted(point: BranchPoint) -> bool:
    return point.through_step is not None or bool(point.layouts)
