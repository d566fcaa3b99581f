"""Adoption: a job goes on from a generation that agents have seen and the journal has lost."""

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
    job.generation.own_restarts = max(job.generation.own_restarts, state.settings.own_restarts)
    world_size = told or job.world_size or job.spec.nodes_max * job.spec.processes_per_node
    job.lineage.branch.append(BranchPoint(generation, None, world_size))
    # It may have had a state: if nobody can give that back, it must not look like a fresh start.
    job.lineage.adopted = AdoptedGeneration(generation, told)


def note_beginning(job: JobRecord, generation: int, key: StepKey) -> None:
    """Say from which step a generation of the branch began, where the branch does not tell it."""
    branch, (before, step) = job.lineage.branch, key
    size = next((one.world_size for one in branch if one.generation == generation), None)
    ends = next((one.through_step for one in branch if one.generation == before), None)
    if size is None or ends is not None or before >= generation:
        return
    others = [one for one in branch if one.generation != before]
    branch[:] = sorted([*others, BranchPoint(before, step, size)], key=lambda one: one.generation)
