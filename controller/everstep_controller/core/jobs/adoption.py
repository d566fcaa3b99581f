"""Adoption: a job goes on from a generation that agents have seen and the journal has lost."""

from dataclasses import replace

from everstep_controller.core.model.agents import AdoptedGeneration, SeenGeneration
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.snapshots import BranchPoint, StepKey
from everstep_controller.core.model.state import State


def go_on_from(state: State, job: JobRecord, generation: int, world_size: int = 0) -> None:
    """Have a job's newest generation be one that the journal has lost.

    Its snapshots are on the branch, whoever the members were, for as many ranks as agents say that
    it had.
    """
    seen = state.generations_seen.get(job.name, SeenGeneration(0))
    told = world_size or (seen.world_size if seen.number == generation else 0)
    job.generation.number, job.generation.unreachable = generation, ""
    # What its plan has left to an agent nobody knows, and it may have used that since.
    left = max(job.generation.own_restarts, state.settings.autonomous_restarts_max)
    job.generation.own_restarts = left
    world_size = told or job.world_size or job.spec.nodes_max * job.spec.processes_per_node
    job.lineage.branch.append(BranchPoint(generation, None, world_size))
    # It may have had a state: if nobody can give that back, it must not look like a fresh start.
    job.lineage.adopted = AdoptedGeneration(generation, told)
    job.recovery.got_going = True  # it may have trained for days, and its steps are lost with it


def follow_own_generation(job: JobRecord, before: int, generation: int) -> None:
    """Have a generation on the branch that an agent began after the newest one there."""
    last, adopted = job.lineage.branch[-1], job.lineage.adopted
    if last.generation != before or last.through_step is not None:
        return
    job.lineage.branch.append(BranchPoint(generation, None, last.world_size))
    if adopted is not None:
        job.lineage.adopted = replace(adopted, number=generation)


def note_beginning(job: JobRecord, generation: int, key: StepKey) -> None:
    """Say from which step a generation of the branch began, where the branch does not tell it.

    What was begun between the two is abandoned.
    """
    branch, (before, step) = job.lineage.branch, key
    size = next((one.world_size for one in branch if one.generation == generation), None)
    earlier = [one for one in branch if one.generation < generation]
    if size is None or before >= generation or (earlier and earlier[-1].through_step is not None):
        return
    known = next((one for one in earlier if one.generation == before), None)
    left = known or BranchPoint(before, None, size)
    through_step = step if left.through_step is None else min(step, left.through_step)
    branch[:] = [
        *(one for one in earlier if one.generation < before),
        replace(left, through_step=through_step),
        *(one for one in branch if one.generation >= generation),
    ]
