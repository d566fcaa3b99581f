"""Copies of a job's state: the part of each, and what those of a step or generation cover."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter
from typing import NamedTuple


class Tier(Enum):
    """Tier of a copy: where it is, in the order in which a restore prefers it."""

    MEMORY = 0
    DISK = 1


# Whether it is a file, rank, whether it is a replica, and the node: one copy of a step.
Place = tuple[bool, int, bool, str]


class Copy(NamedTuple):
    """A verified copy of what one rank snapshotted after one step, on one node.

    Copies with the same ``layout`` are equal copies of the same part of the state. A named tuple,
    for it is made in a third of the time of a frozen dataclass, 3,000 times a second.
    """

    node: str
    generation: int
    rank: int
    step: int
    replica: bool
    root_hash: str
    size_bytes: int
    layout: str
    tier: Tier = Tier.MEMORY
    # The layout without the parts that another rank's copy can replace; "": it has no such parts.
    needed: str = ""

    @property
    def place(self) -> Place:
        """Return what no two copies of one step share."""
        return (self.tier is Tier.DISK, self.rank, self.replica, self.node)

    @property
    def part(self) -> str:
        """Return which part of the state it is: copies of one part can stand in for each other."""
        return self.needed or self.layout


class Parts(NamedTuple):
    """Contents of some copies of one step: their ranks, and the needed parts by layout."""

    ranks: Set[int]
    layouts: Set[str]


@dataclass(slots=True)
class Holders:
    """Number of nodes that hold each layout."""

    _nodes: dict[str, dict[str, int]] = field(default_factory=dict)
    # Layouts on two nodes or more.
    safe: int = 0

    def add(self, layout: str, node: str) -> None:
        """Count a copy on a node."""
        nodes = self._nodes.get(layout)
        if nodes is None:
            self._nodes[layout] = {node: 1}
            return
        known = nodes.get(node, 0)
        nodes[node] = known + 1
        self.safe += not known and len(nodes) == 2

    def remove(self, layout: str, node: str) -> None:
        """Take a copy off the count."""
        nodes = self._nodes[layout]
        nodes[node] -= 1
        if nodes[node]:
            return
        del nodes[node]
        self.safe -= len(nodes) == 1
        if not nodes:
            del self._nodes[layout]

    def __len__(self) -> int:
        """Return how many layouts are on any node."""
        return len(self._nodes)

    def names(self) -> Set[str]:
        """Return the layouts that are on any node."""
        return self._nodes.keys()

    def without(self, lost: Sequence[Copy]) -> Set[str]:
        """Return the layouts that are left when these copies are not counted."""
        if not lost:
            return self._nodes.keys()
        away: dict[str, set[str]] = {}
        for copy in lost:
            away.setdefault(copy.layout, set()).add(copy.node)
        gone = {layout for layout, nodes in away.items() if nodes >= self._nodes[layout].keys()}
        return self._nodes.keys() - gone


@dataclass(slots=True)
class Coverage:
    """Coverage of one step by its copies in one tier."""

    # Copies of each rank …
    ranks: dict[int, int] = field(default_factory=dict)
    # … and nodes of each part.
    layouts: Holders = field(default_factory=Holders)
    # For layouts with replaceable parts: the layout without these.
    needed: dict[str, str] = field(default_factory=dict)

    def add(self, copy: Copy) -> None:
        """Count a copy."""
        count(self.ranks, copy.rank, 1)
        self.layouts.add(copy.layout, copy.node)
        if copy.needed:
            self.needed[copy.layout] = copy.needed

    def remove(self, copy: Copy) -> None:
        """Take a copy off the count."""
        count(self.ranks, copy.rank, -1)
        self.layouts.remove(copy.layout, copy.node)

    def without(self, lost: Sequence[Copy]) -> Parts:
        """Return what is covered without these copies, all those of some nodes."""
        if not lost:
            return Parts(self.ranks.keys(), self._needed_of(self.layouts.names()))
        away = Counter(copy.rank for copy in lost)
        gone = {rank for rank, number in away.items() if number == self.ranks[rank]}
        return Parts(self.ranks.keys() - gone, self._needed_of(self.layouts.without(lost)))

    def _needed_of(self, layouts: Set[str]) -> Set[str]:
        return {self.needed.get(one, one) for one in layouts} if self.needed else layouts


def count(counts: dict[int, int], key: int, by: int) -> None:
    """Count up or down; what comes to nothing is forgotten."""
    left = counts.get(key, 0) + by
    if left:
        counts[key] = left
    else:
        del counts[key]


# The node in a Place.
_NODE_OF = itemgetter(3)


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
