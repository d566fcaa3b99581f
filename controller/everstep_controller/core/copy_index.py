"""The copies of one generation by step, kept up to date so that no question reads all of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

# Rank, whether it is a replica, and the node: one copy of a step.
Place = tuple[int, bool, str]


@dataclass(frozen=True, slots=True)
class Copy:
    """A verified copy of what one rank snapshotted after one step, on one node."""

    node: str
    generation: int
    rank: int
    step: int
    replica: bool
    root_hash: str
    size_bytes: int
    shards: tuple[str, ...]

    @property
    def place(self) -> Place:
        """Return what no two copies of one step share."""
        return (self.rank, self.replica, self.node)


@dataclass(slots=True)
class StepCopies:
    """The copies of one step."""

    _copies: dict[Place, Copy] = field(default_factory=dict)
    # On how many nodes each rank's state is.
    _nodes: dict[int, int] = field(default_factory=dict)
    # Ranks on two nodes or more.
    _safe: int = 0

    def put(self, copy: Copy) -> None:
        """Add a copy, or replace the one in its place."""
        rank, replica, node = place = copy.place
        if place not in self._copies and (rank, not replica, node) not in self._copies:
            count = self._nodes[rank] = self._nodes.get(rank, 0) + 1
            self._safe += count == 2
        self._copies[place] = copy

    def drop(self, place: Place) -> None:
        """Remove a copy."""
        rank, replica, node = place
        del self._copies[place]
        if (rank, not replica, node) in self._copies:
            return
        count = self._nodes[rank] = self._nodes[rank] - 1
        self._safe -= count == 1
        if not count:
            del self._nodes[rank]

    @property
    def empty(self) -> bool:
        """Return whether no copy is left."""
        return not self._copies

    def ranks_on(self, nodes_needed: int) -> int:
        """Return how many ranks are on at least this many nodes, one or two."""
        return len(self._nodes) if nodes_needed == 1 else self._safe

    def ordered(self) -> list[Copy]:
        """Return the copies by rank, a rank's own before its replicas."""
        return [self._copies[place] for place in sorted(self._copies)]


@dataclass(slots=True)
class GenerationCopies:
    """The copies of one generation."""

    steps: dict[int, StepCopies] = field(default_factory=dict)
    # Rank to the steps that it holds itself, each with the number of nodes on which it does.
    _own: dict[int, dict[int, int]] = field(default_factory=dict)
    # Step to the number of ranks that hold it themselves.
    _own_ranks: dict[int, int] = field(default_factory=dict)

    def put(self, copy: Copy, *, known: bool) -> None:
        """Add a copy; ``known`` when one was in its place."""
        self.steps.setdefault(copy.step, StepCopies()).put(copy)
        if not copy.replica and not known:
            steps = self._own.setdefault(copy.rank, {})
            steps[copy.step] = steps.get(copy.step, 0) + 1
            if steps[copy.step] == 1:
                self._own_ranks[copy.step] = self._own_ranks.get(copy.step, 0) + 1

    def drop(self, copy: Copy) -> None:
        """Remove a copy."""
        step = self.steps[copy.step]
        step.drop(copy.place)
        if step.empty:
            del self.steps[copy.step]
        if not copy.replica:
            self._drop_own(copy.rank, copy.step)

    def _drop_own(self, rank: int, step: int) -> None:
        steps = self._own[rank]
        steps[step] -= 1
        if steps[step]:
            return
        del steps[step]
        if not steps:
            del self._own[rank]
        self._own_ranks[step] -= 1
        if not self._own_ranks[step]:
            del self._own_ranks[step]

    def newest_on(self, nodes_needed: int, world_size: int) -> int | None:
        """Return the newest step of which every rank is on this many nodes."""
        whole = [
            number
            for number, step in self.steps.items()
            if step.ranks_on(1) == world_size and step.ranks_on(nodes_needed) == world_size
        ]
        return max(whole, default=None)

    def passed(self, world_size: int, after: int | None) -> Sequence[int]:
        """Return the steps after ``after`` that some rank has passed without a snapshot."""
        if len(self._own) < world_size:
            return ()
        newest = max(self._own_ranks)
        return sorted(
            step
            for step, ranks in self._own_ranks.items()
            # Whole on its ranks, or the newest of all: nobody can have passed it.
            if ranks < len(self._own)
            and step < newest
            and (after is None or step > after)
            and self._passed(step)
        )

    def _passed(self, step: int) -> bool:
        return any(step not in steps and max(steps) > step for steps in self._own.values())

    def __iter__(self) -> Iterator[Copy]:
        """Yield all copies, newest step first."""
        for step in sorted(self.steps, reverse=True):
            yield from self.steps[step].ordered()
