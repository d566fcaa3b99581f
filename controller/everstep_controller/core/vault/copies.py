"""Copies of a job's state: the part of each, and what those of a step or generation cover."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, filterfalse, repeat
from operator import is_, itemgetter
from typing import NamedTuple, TypeVar


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
_SLOT_OF = itemgetter(2, 4)
_RANK_OF, _IS_REPLICA, _LAYOUT_OF = itemgetter(2), itemgetter(4), itemgetter(7)
_TIER_OF, _NEEDED_OF = itemgetter(8), itemgetter(9)
# Rank, whether it is a replica, and the node.
_ORDER_OF = itemgetter(2, 4, 0)


@dataclass(slots=True)
class _Covered:
    """Coverage of a tier's copies: their number by rank, and nodes with each layout."""

    ranks: Counter[int] = field(default_factory=Counter)
    # Of these, those in the rank's own memory.
    own: Counter[int] = field(default_factory=Counter)
    layouts: Counter[str] = field(default_factory=Counter)

    def add(self, changes: "Sequence[_Change]") -> None:
        """Count copies, those of thousands of nodes at once."""
        copies = [*chain.from_iterable(map(_COPIES_OF, changes))]
        self.ranks.update(map(_RANK_OF, copies))
        self.own.update(map(_RANK_OF, filterfalse(_IS_REPLICA, copies)))
        self.layouts.update(chain.from_iterable(map(_layouts_of, changes)))

    def remove(self, change: "_Change") -> None:
        """Count copies no more."""
        copies = change[0]
        _count_down(self.ranks, map(_RANK_OF, copies))
        _count_down(self.own, map(_RANK_OF, filterfalse(_IS_REPLICA, copies)))
        _count_down(self.layouts, _layouts_of(change))


_Key = TypeVar("_Key")


def _count_down(counts: Counter[_Key], keys: Iterable[_Key]) -> None:
    for key in keys:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]


# Copies that came to a node or went, and the layouts of which it had none or has none left; None:
# those of these copies.
_Change = tuple[Sequence[Copy], Set[str] | None]
_COPIES_OF: Callable[[_Change], Sequence[Copy]] = itemgetter(0)


def _layouts_of(change: _Change) -> Set[str]:
    copies, layouts = change
    return set(map(_LAYOUT_OF, copies)) if layouts is None else layouts


@dataclass(slots=True)
class Coverage:
    """Copies of one step in one tier, by node, and what they cover.

    A node tells of all its copies of a step at once, and drops them at once. They are counted when
    somebody asks what is covered, for all nodes that have told since.
    """

    _nodes: dict[str, dict[_Slot, Copy]] = field(default_factory=dict)
    # For layouts with replaceable parts: the layout without these.
    _needed: dict[str, str] = field(default_factory=dict)
    # None: so many are gone that they are counted anew.
    _counted: _Covered | None = field(default_factory=_Covered)
    # What came and went since they were counted.
    _new: list[_Change] = field(default_factory=list)
    _gone: list[_Change] = field(default_factory=list)

    def put(self, node: str, copies: Sequence[Copy]) -> list[Copy]:
        """Add copies on a node; return those of which there is another one already."""
        by_slot = dict(zip(map(_SLOT_OF, copies), copies, strict=True))
        known = self._nodes.setdefault(node, by_slot)
        layouts: Set[str] | None = None
        refused: list[Copy] = []
        if known is not by_slot or len(by_slot) < len(copies):
            if known is by_slot:
                known = self._nodes[node] = {}
            before = set(map(_LAYOUT_OF, known.values()))
            refused = [
                copy for copy in copies if known.setdefault(_SLOT_OF(copy), copy) is not copy
            ]
            taken = set(map(id, refused))
            copies = [copy for copy in copies if id(copy) not in taken]
            layouts = set(map(_LAYOUT_OF, copies)) - before
        if self._counted is not None:
            self._new.append((copies, layouts))
        if any(map(_NEEDED_OF, copies)):
            self._needed.update((copy.layout, copy.needed) for copy in copies if copy.needed)
        return refused

    def drop(self, node: str, copies: Sequence[Copy]) -> None:
        """Remove copies on a node."""
        known = self._nodes[node]
        layouts: Set[str] | None = None
        if len(copies) == len(known):
            del self._nodes[node]
        else:
            for slot in map(_SLOT_OF, copies):
                del known[slot]
            layouts = set(map(_LAYOUT_OF, copies)) - set(map(_LAYOUT_OF, known.values()))
        if self._counted is not None and len(self._gone) < len(self._nodes):
            self._gone.append((copies, layouts))
        else:
            self._counted, self._new, self._gone = None, [], []

    @property
    def nodes(self) -> Set[str]:
        """Return the nodes that have a copy."""
        return self._nodes.keys()

    @property
    def ranks(self) -> Set[int]:
        """Return the ranks of which there is a copy."""
        return self._covered().ranks.keys()

    @property
    def own(self) -> Set[int]:
        """Return the ranks that have a copy in their own memory."""
        return self._covered().own.keys()

    @property
    def layouts(self) -> Set[str]:
        """Return the layouts that are on any node."""
        return self._covered().layouts.keys()

    @property
    def replaceable(self) -> bool:
        """Return whether some layouts have parts that another rank's copy can replace."""
        return bool(self._needed)

    @property
    def safe(self) -> bool:
        """Return whether each layout is on two nodes."""
        return min(self._covered().layouts.values(), default=2) > 1

    @property
    def orphaned(self) -> bool:
        """Return whether some layout is left in a single replica, which nobody copies again."""
        counts = self._covered().layouts
        single = {layout for layout, count in counts.items() if count == 1}
        return bool(single) and not single.issubset(c.layout for c in self if not c.replica)

    @property
    def exposed(self) -> Set[str]:
        """Return the nodes that have the only copy of some layout."""
        counts = self._covered().layouts
        return {copy.node for copy in self if counts[copy.layout] == 1}

    def __iter__(self) -> Iterator[Copy]:
        """Yield the copies in no order."""
        return chain.from_iterable(copies.values() for copies in self._nodes.values())

    def __bool__(self) -> bool:
        """Return whether there is any copy."""
        return bool(self._nodes)

    def ordered(self) -> list[Copy]:
        """Return the copies by rank, a rank's own before its replicas, and by node.

        They are put in their places: to sort the 200,000 of the largest jobs takes five times as
        long, and a plan waits for it.
        """
        last, count = max(self.ranks, default=0), sum(map(len, self._nodes.values()))
        if last > 4 * count:
            return sorted(self, key=_ORDER_OF)
        places: list[Copy | None] = [None] * (2 * last + 2)
        more: list[Copy] = []
        for copies in self._nodes.values():
            for (rank, replica), copy in copies.items():
                place = rank + rank + replica
                if places[place] is None:
                    places[place] = copy
                else:
                    more.append(copy)
        found = [copy for copy in places if copy is not None]
        return sorted([*found, *more], key=_ORDER_OF) if more else found

    def without(self, lost: Sequence[Copy]) -> Parts:
        """Return what is covered without these copies, all those of some nodes."""
        covered = self._covered()
        ranks, layouts = covered.ranks.keys(), covered.layouts.keys()
        if not lost:
            return Parts(ranks, self._needed_of(layouts))
        copies_of = Counter(map(_RANK_OF, lost))
        nodes_of = Counter(layout for layout, _ in {(copy.layout, copy.node) for copy in lost})
        dead = {rank for rank, count in copies_of.items() if count == covered.ranks[rank]}
        gone = {layout for layout, count in nodes_of.items() if count == covered.layouts[layout]}
        return Parts(ranks - dead, self._needed_of(layouts - gone))

    def _needed_of(self, layouts: Set[str]) -> Set[str]:
        return {self._needed.get(one, one) for one in layouts} if self._needed else layouts

    def _covered(self) -> _Covered:
        """Return what the copies cover, as of now."""
        counted, new = self._counted, self._new
        if counted is None:
            counted = self._counted = _Covered()
            new = [(tuple(copies.values()), None) for copies in self._nodes.values()]
        if new:
            counted.add(new)
        for change in self._gone:
            counted.remove(change)
        self._new, self._gone = [], []
        return counted


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
        return self.memory.ordered() + self.files.ordered()

    def __iter__(self) -> Iterator[Copy]:
        """Yield the copies in no order."""
        return chain(self.memory, self.files)


def _by_tier(copies: Sequence[Copy]) -> tuple[Sequence[Copy], Sequence[Copy]]:
    if not any(map(is_, map(_TIER_OF, copies), repeat(Tier.DISK))):
        return copies, ()
    files = [copy for copy in copies if copy.tier is Tier.DISK]
    return [copy for copy in copies if copy.tier is Tier.MEMORY], files


@dataclass(slots=True)
class GenerationCopies:
    """The copies of one generation."""

    steps: dict[int, StepCopies] = field(default_factory=dict)
    # By rank, up to which step it has all the copies that it ever gets, where it has left some out.
    # It stays true, whatever becomes of its node.
    left_out: dict[int, int] = field(default_factory=dict)
    # What was asked of `passed` last, and its answer, until copies come or go: of a job whose ranks
    # save different steps it is asked twice a second.
    _asked: tuple[int, int | None, Collection[str]] | None = None
    _passed: list[int] = field(default_factory=list)

    def put(self, node: str, step: int, copies: Sequence[Copy]) -> list[Copy]:
        """Add copies on a node; return those of which there is another one already."""
        self._asked = None
        known = self.steps.get(step)
        if known is None:
            known = self.steps[step] = StepCopies()
        return known.put(node, copies)

    def drop(self, node: str, step: int, copies: Sequence[Copy]) -> None:
        """Remove copies on a node."""
        self._asked = None
        known = self.steps[step]
        known.drop(node, copies)
        if known.empty:
            del self.steps[step]

    def leave_out(self, rank: int, step: int) -> None:
        """A rank has gone past a step, and has no copies up to it but those that were told."""
        if step > self.left_out.get(rank, -1):
            self.left_out[rank] = step
            self._asked = None

    def passed(self, world_size: int, after: int | None, learned: Collection[str]) -> list[int]:
        """Return the steps after ``after`` that some rank has passed without a snapshot.

        Not those whose parts are all there in spite of it, in equal copies of other ranks, or in
        replicas. But a rank whose own copies are lost, as with its agent, makes no second replica
        of them: such steps never survive the loss of any one node, and where others kept them all,
        no slot would get free. Only the newest of them is kept, to restore from until there is a
        step that does; and an older one as long as that survives the loss of a node which the newer
        ones do not, of which replicas of other ranks are still on their way.
        """
        asked = (world_size, after, learned)
        if self._asked != asked:
            self._asked, self._passed = asked, self._find_passed(*asked)
        return self._passed

    def _find_passed(
        self, world_size: int, after: int | None, learned: Collection[str]
    ) -> list[int]:
        ahead, found = set[int](), []
        left_out = sorted(self.left_out.items(), key=itemgetter(1))
        # Of those that are kept to restore from, the nodes that must not be lost.
        kept: list[Set[str]] = [] if after is None else [frozenset()]
        for step in sorted(self.steps, reverse=True):
            if after is not None and step <= after:
                break
            while left_out and left_out[-1][1] >= step:
                ahead.add(left_out.pop()[0])
            copies = self.steps[step]
            own = copies.memory.own
            # Ranks without the step have gone past it, or have not reached it yet.
            if own and not ahead <= own:
                if not copies.whole(world_size, learned):
                    found.append(step)
                elif copies.memory.orphaned:
                    exposed = copies.memory.exposed
                    if any(newer <= exposed for newer in kept):
                        found.append(step)
                    else:
                        kept.append(exposed)
            ahead |= own
        return found[::-1] if found and self._all_told(world_size) else []

    def _all_told(self, world_size: int) -> bool:
        """Return whether every rank has had a copy of some step in its own memory."""
        told = set[int]()
        for copies in self.steps.values():
            told |= copies.memory.own
        return len(told) >= world_size
