"""The copies of one generation by step, kept up to date so that no question reads all of them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from everstep_controller.core.vault.copies import Copy, Coverage, Parts, Place, Tier, count

_NODE_OF = itemgetter(3)


# of a place


@dataclass(slots=True)
class StepCopies:
    """The copies of one step."""

    _copies: dict[Place, Copy] = field(default_factory=dict)
    memory: Coverage = field(default_factory=Coverage)
    files: Coverage = field(default_factory=Coverage)

    def put(self, copy: Copy) -> bool:
        """Add a copy; return False if there is one in its place already."""
        if self._copies.setdefault(copy.place, copy) is not copy:
            return False
        self._tier(copy).add(copy)
        return True

    def drop(self, copy: Copy) -> None:
        """Remove a copy."""
        del self._copies[copy.place]
        self._tier(copy).remove(copy)

    def _tier(self, copy: Copy) -> Coverage:
        return self.memory if copy.tier is Tier.MEMORY else self.files

    @property
    def empty(self) -> bool:
        """Return whether no copy is left."""
        return not self._copies

    def whole(self, world_size: int, learned: Collection[str]) -> bool:
        """Return whether memory has all parts: those that were learned, or one of every rank.

        Only what is in memory counts for what may be freed from it, and all of it: as long as
        nothing is lost, a step without some rank's own things is only not complete yet.
        """
        parts = self.memory.layouts
        if len(self.memory.ranks) >= world_size > 0:
            return True
        return 0 < len(learned) == len(parts) and parts.names() == set(learned)

    def safe(self) -> bool:
        """Return whether each part that is in memory is on two nodes."""
        return self.memory.layouts.safe == len(self.memory.layouts)

    def parts(self, lost: Sequence[Copy], *, files: bool) -> Parts:
        """Return what is left in memory (with files: or on disk) without the ``lost`` ones."""
        memory = self.memory.without([copy for copy in lost if copy.tier is Tier.MEMORY])
        if not files:
            return memory
        disk = self.files.without([copy for copy in lost if copy.tier is Tier.DISK])
        if not disk.ranks:
            return memory
        return Parts(memory.ranks | disk.ranks, memory.layouts | disk.layouts)

    def nodes(self) -> set[str]:
        """Return the nodes that have a copy."""
        return set(map(_NODE_OF, self._copies))

    def ordered(self) -> list[Copy]:
        """Return the copies: memory before disk, by rank, a rank's own before its replicas."""
        return [self._copies[place] for place in sorted(self._copies)]

    def __iter__(self) -> Iterator[Copy]:
        """Yield the copies in no order."""
        return iter(self._copies.values())


@dataclass(slots=True)
class GenerationCopies:
    """The copies of one generation."""

    steps: dict[int, StepCopies] = field(default_factory=dict)
    # Rank to the steps that it has in its own memory, each with the number of nodes that do.
    _own: dict[int, dict[int, int]] = field(default_factory=dict)
    # Step to the number of ranks that have it so, and to the number whose newest it is.
    _own_ranks: dict[int, int] = field(default_factory=dict)
    _newest_of: dict[int, int] = field(default_factory=dict)

    def put(self, copy: Copy) -> bool:
        """Add a copy; return False if there is one in its place already."""
        step = self.steps.get(copy.step)
        if step is None:
            step = self.steps[copy.step] = StepCopies()
        if not step.put(copy):
            return False
        if not copy.replica and copy.tier is Tier.MEMORY:
            steps = self._own.setdefault(copy.rank, {})
            before = max(steps, default=None)
            steps[copy.step] = steps.get(copy.step, 0) + 1
            if steps[copy.step] == 1:
                count(self._own_ranks, copy.step, 1)
            self._newest(before, max(steps))
        return True

    def drop(self, copy: Copy) -> None:
        """Remove a copy."""
        step = self.steps[copy.step]
        step.drop(copy)
        if step.empty:
            del self.steps[copy.step]
        if not copy.replica and copy.tier is Tier.MEMORY:
            self._drop_own(copy.rank, copy.step)

    def _drop_own(self, rank: int, step: int) -> None:
        steps = self._own[rank]
        before = max(steps)
        steps[step] -= 1
        if steps[step]:
            return
        del steps[step]
        count(self._own_ranks, step, -1)
        self._newest(before, max(steps, default=None))
        if not steps:
            del self._own[rank]

    def _newest(self, before: int | None, after: int | None) -> None:
        if before == after:
            return
        if before is not None:
            count(self._newest_of, before, -1)
        if after is not None:
            count(self._newest_of, after, 1)

    def passed(self, world_size: int, after: int | None, learned: Collection[str]) -> list[int]:
        """Return the steps after ``after`` that some rank has passed without a snapshot.

        Not those whose parts are all there in spite of it, in equal copies of other ranks.
        """
        if len(self._own) < world_size:
            return []
        return sorted(
            step
            for step in self._own_ranks
            if (after is None or step > after)
            and self._passed(step)
            and not self.steps[step].whole(world_size, learned)
        )

    def _passed(self, step: int) -> bool:
        """Whoever does not have the step has gone past it, or has not got there yet."""
        behind = sum(ranks for newest, ranks in self._newest_of.items() if newest < step)
        return len(self._own) - self._own_ranks[step] - behind > 0
