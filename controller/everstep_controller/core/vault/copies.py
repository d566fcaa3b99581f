"""Copies of a job's state: the part of each, and what those of a step or generation cover."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
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


# Rank, and whether it is a replica: what no two copies on one node in one tier share.
_Slot = tuple[int, bool]
_SLOT_OF, _FIRST = itemgetter(2, 4), itemgetter(0)
_RANK_OF, _LAYOUT_OF, _NEEDED_OF = itemgetter(2), itemgetter(7), itemgetter(9)


@dataclass(slots=True)
class _Covered:
    """What the copies of a tier cover: it grows with each that comes, and is found anew after."""

    ranks: set[int] = field(default_factory=set)
    # Ranks that have a copy in their own memory.
    own: set[int] = field(default_factory=set)
    # Of each layout a node that has it; and the layouts on two nodes or more.
    layouts: dict[str, str] = field(default_factory=dict)
    safe: set[str] = field(default_factory=set)

    def add(self, node: str, copies: Collection[Copy]) -> None:
        """Take in copies on a node."""
        self.ranks.update(map(_RANK_OF, copies))
        self.own.update(copy.rank for copy in copies if not copy.replica)
        known, safe = self.layouts, self.safe
        for layout in map(_LAYOUT_OF, copies):
            if known.setdefault(layout, node) != node:
                safe.add(layout)


@dataclass(slots=True)
class Coverage:
    """Copies of one step in one tier, by node, and what they cover.

    A node tells of all its copies of a step at once, and drops them at once: no copy is counted
    for itself. What is left when copies are gone is found when somebody asks.
    """

    _nodes: dict[str, dict[_Slot, Copy]] = field(default_factory=dict)
    # For layouts with replaceable parts: the layout without these.
    _needed: dict[str, str] = field(default_factory=dict)
    _covered: _Covered | None = field(default_factory=_Covered)
    # How many copies there are of each rank, and the nodes with each layout, once somebody asked.
    _index: tuple[Counter[int], dict[str, set[str]]] | None = None

    def put(self, node: str, copies: Sequence[Copy]) -> list[Copy]:
        """Add copies on a node; return those of which there is another one already."""
        by_slot = dict(zip(map(_SLOT_OF, copies), copies, strict=True))
        known = self._nodes.setdefault(node, by_slot)
        refused: list[Copy] = []
        if known is not by_slot or len(by_slot) < len(copies):
            if known is by_slot:
                known = self._nodes[node] = {}
            refused = [
                copy for copy in copies if known.setdefault(_SLOT_OF(copy), copy) is not copy
            ]
            taken = set(map(id, refused))
            copies = [copy for copy in copies if id(copy) not in taken]
        self._index = None
        if self._covered is not None:
            self._covered.add(node, copies)
        if any(map(_NEEDED_OF, copies)):
            self._needed.update((copy.layout, copy.needed) for copy in copies if copy.needed)
        return refused

    def drop(self, node: str, copies: Sequence[Copy]) -> None:
        """Remove copies on a node."""
        known = self._nodes[node]
        if len(copies) == len(known):
            del self._nodes[node]
        else:
            for slot in map(_SLOT_OF, copies):
                del known[slot]
        self._covered = self._index = None

    @property
    def nodes(self) -> Set[str]:
        """Return the nodes that have a copy."""
        return self._nodes.keys()

    @property
    def ranks(self) -> Set[int]:
        """Return the ranks of which there is a copy."""
        return self._cover().ranks

    @property
    def own(self) -> Set[int]:
        """Return the ranks that have a copy in their own memory."""
        return self._cover().own

    @property
    def layouts(self) -> Set[str]:
        """Return the layouts that are on any node."""
        return self._cover().layouts.keys()

    @property
    def replaceable(self) -> bool:
        """Return whether some layouts have parts that another rank's copy can replace."""
        return bool(self._needed)

    @property
    def safe(self) -> bool:
        """Return whether each layout is on two nodes."""
        covered = self._cover()
        return len(covered.safe) == len(covered.layouts)

    def __iter__(self) -> Iterator[Copy]:
        """Yield the copies in no order."""
        return chain.from_iterable(copies.values() for copies in self._nodes.values())

    def __bool__(self) -> bool:
        """Return whether there is any copy."""
        return bool(self._nodes)

    def without(self, lost: Sequence[Copy]) -> Parts:
        """Return what is covered without these copies, all those of some nodes."""
        if not lost:
            return Parts(self.ranks, self._needed_of(self.layouts))
        copies_of, nodes_of = self._indexed()
        away: dict[str, set[str]] = {}
        for copy in lost:
            away.setdefault(copy.layout, set()).add(copy.node)
        gone = {layout for layout, nodes in away.items() if nodes >= nodes_of[layout]}
        dead = {
            rank for rank, count in Counter(map(_RANK_OF, lost)).items() if count == copies_of[rank]
        }
        return Parts(self.ranks - dead, self._needed_of(self.layouts - gone))

    def _needed_of(self, layouts: Set[str]) -> Set[str]:
        return {self._needed.get(one, one) for one in layouts} if self._needed else layouts

    def _cover(self) -> _Covered:
        if self._covered is None:
            self._covered = self._find_covered()
        return self._covered

    def _find_covered(self) -> _Covered:
        """Return what all copies cover; by whole nodes, for a plan of thousands waits for it."""
        slots = [*chain.from_iterable(self._nodes.values())]
        covered = _Covered(
            set(map(_FIRST, slots)), {rank for rank, replica in slots if not replica}
        )
        nodes_with = Counter[str]()
        for node, copies in self._nodes.items():
            layouts = set(map(_LAYOUT_OF, copies.values()))
            covered.layouts.update(dict.fromkeys(layouts, node))
            nodes_with.update(layouts)
        covered.safe.update(layout for layout, nodes in nodes_with.items() if nodes > 1)
        return covered

    def _indexed(self) -> tuple[Counter[int], dict[str, set[str]]]:
        if self._index is None:
            nodes_of: dict[str, set[str]] = {}
            for node, copies in self._nodes.items():
                for layout in map(_LAYOUT_OF, copies.values()):
                    nodes_of.setdefault(layout, set()).add(node)
            self._index = Counter(map(_RANK_OF, self)), nodes_of
        return self._index


@dataclass(slots=True)
class StepCopies:
    """The copies of one step."""

    memory: Coverage = field(default_factory=Coverage)
    files: Coverage = field(default_factory=Coverage)

    def put(self, node: str, copies: Sequence[Copy]) -> list[Copy]:
        """Add copies on a node; return those of which there is another one already."""
        memory, files = _by_tier(copies)
        refused = self.memory.put(node, memory) if memory else []
        return refused + self.files.put(node, files) if files else refused

    def drop(self, node: str, copies: Sequence[Copy]) -> None:
        """Remove copies on a node."""
        memory, files = _by_tier(copies)
        if memory:
            self.memory.drop(node, memory)
        if files:
            self.files.drop(node, files)

    @property
    def empty(self) -> bool:
        """Return whether no copy is left."""
        return not self.memory and not self.files

    def whole(self, world_size: int, learned: Collection[str]) -> bool:
        """Return whether memory has all parts: those that were learned, or one of every rank.

        Only what is in memory counts for what may be freed from it, and all of it: as long as
        nothing is lost, a step without some rank's own things is only not complete yet.
        """
        if len(self.memory.ranks) >= world_size > 0:
            return True
        parts = self.memory.layouts
        return 0 < len(learned) == len(parts) and parts == set(learned)

    def safe(self) -> bool:
        """Return whether each part that is in memory is on two nodes."""
        return self.memory.safe

    def parts(self, lost: Sequence[Copy], *, files: bool) -> Parts:
        """Return what is left in memory (with files: or on disk) without the ``lost`` ones."""
        memory = self.memory.without([copy for copy in lost if copy.tier is Tier.MEMORY])
        if not files:
            return memory
        disk = self.files.without([copy for copy in lost if copy.tier is Tier.DISK])
        if not disk.ranks:
            return memory
        return Parts(memory.ranks | disk.ranks, memory.layouts | disk.layouts)

    def nodes(self) -> Set[str]:
        """Return the nodes that have a copy."""
        return self.memory.nodes | self.files.nodes

    def ordered(self) -> list[Copy]:
        """Return the copies: memory before disk, by rank, a rank's own before its replicas."""
        return sorted(self.memory, key=_ORDER_OF) + sorted(self.files, key=_ORDER_OF)

    def __iter__(self) -> Iterator[Copy]:
        """Yield the copies in no order."""
        return chain(self.memory, self.files)


# Rank, whether it is a replica, and the node; a plan sorts 33,000 copies.
_ORDER_OF = itemgetter(2, 4, 0)


def _by_tier(copies: Sequence[Copy]) -> tuple[Sequence[Copy], Sequence[Copy]]:
    files = [copy for copy in copies if copy.tier is Tier.DISK]
    if not files:
        return copies, files
    return [copy for copy in copies if copy.tier is Tier.MEMORY], files


@dataclass(slots=True)
class GenerationCopies:
    """The copies of one generation."""

    steps: dict[int, StepCopies] = field(default_factory=dict)

    def put(self, node: str, step: int, copies: Sequence[Copy]) -> list[Copy]:
        """Add copies on a node; return those of which there is another one already."""
        known = self.steps.get(step)
        if known is None:
            known = self.steps[step] = StepCopies()
        return known.put(node, copies)

    def drop(self, node: str, step: int, copies: Sequence[Copy]) -> None:
        """Remove copies on a node."""
        known = self.steps[step]
        known.drop(node, copies)
        if known.empty:
            del self.steps[step]

    def passed(self, world_size: int, after: int | None, learned: Collection[str]) -> list[int]:
        """Return the steps after ``after`` that some rank has passed without a snapshot.

        Not those whose parts are all there in spite of it, in equal copies of other ranks.
        """
        ahead, found = set[int](), []
        for step in sorted(self.steps, reverse=True):
            if after is not None and step <= after:
                break
            copies = self.steps[step]
            own = copies.memory.own
            # Whoever does not have the step has gone past it, or has not got there yet.
            if own and not ahead <= own and not copies.whole(world_size, learned):
                found.append(step)
            ahead |= own
        return found[::-1] if found and self._all_told(world_size) else []

    def _all_told(self, world_size: int) -> bool:
        """Return whether every rank has had a copy of some step in its own memory."""
        told = set[int]()
        for copies in self.steps.values():
            told |= copies.memory.own
        return len(told) >= world_size
