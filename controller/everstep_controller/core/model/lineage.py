"""Lineage of a job's state: branch points, copies to restore from, and steps in storage."""

from dataclasses import dataclass


# Not frozen, only hashed as if: one plan makes 33,000, each in a third of the time.
@dataclass(slots=True, unsafe_hash=True)
class ShardSource:
    """One verified copy that holds some part of the state to restore. Never changed."""

    node: str
    bulk_address: str
    generation: int
    rank: int
    step: int
    root_hash: str
    size_bytes: int
    layout: str = ""
    on_disk: bool = False


@dataclass(frozen=True, slots=True)
class BranchPoint:
    """Steps up to ``through_step`` of a generation belong to the job's current branch.

    None means that the generation is the newest one: all its steps do. A step is whole when copies
    have all ``layouts``, or when every rank of the world has one.
    """

    generation: int
    through_step: int | None
    world_size: int
    layouts: tuple[str, ...] = ()

    def has(self, generation: int, step: int) -> bool:
        """Return whether a step is on the branch here."""
        within = self.through_step is None or step <= self.through_step
        return generation == self.generation and within


# Generation and step: what a state is called.
StepKey = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Predecessor:
    """Predecessor of a job: an earlier one of its name, whose state it continues."""

    job_id: str
    ended_ns: int
    # "failed", as in: the job that failed.
    how: str
