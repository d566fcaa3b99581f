"""Lineage of a job's state: the branch points of its generations, and the job before it."""

from dataclasses import dataclass


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
class Past:
    """Predecessor: the job that had the name before, and whose state this one continues."""

    ended_ns: int
    # "failed", as in: the job that failed.
    how: str
