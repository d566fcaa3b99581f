"""Copy of a rank's state, and which ranks and parts a number of copies cover."""

from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple


class Tier(Enum):
    """Where a copy is, in the order in which a restore prefers it."""

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
    # The layout without what another rank's can stand in for; "": that is all of it.
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
    """What some copies of one step are of: ranks, and by layouts the needed parts of the state."""

    ranks: Set[int]
    layouts: Set[str]


@dataclass(slots=True)
class Holders:
    """On how many nodes each layout is."""

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
    """What the copies of one step in one tier cover."""

    # Copies of each rank …
    ranks: dict[int, int] = field(default_factory=dict)
    # … and nodes of each part.
    layouts: Holders = field(default_factory=Holders)
    # Layouts of which not everything is needed, to what is.
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
