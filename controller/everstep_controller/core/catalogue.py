"""Which verified copies of a job's state exist, which step they make recoverable, and from where.

A catalogue is rebuilt from what agents report and is never journaled: agents can tell it again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from everstep_controller.core.copy_index import Copy, GenerationCopies, Place
from everstep_controller.core.facts import BranchPoint, ShardSource

__all__ = ["Catalogue", "Choice", "Copy", "Recoverable"]


@dataclass(frozen=True, slots=True)
class Recoverable:
    """What agents may free: everything below ``step``, and ``dead_steps`` above it."""

    step: int | None
    # Steps that some rank has passed without a snapshot: they can never become common.
    dead_steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The step to restore and where every shard of it is, or why there is none."""

    step: int | None
    sources: tuple[ShardSource, ...]
    lost: str
    reason: str


@dataclass(slots=True)
class _Holding:
    copies: dict[tuple[int, int, Place], Copy] = field(default_factory=dict)
    settled_generation: int = -1


@dataclass(slots=True)
class Catalogue:
    """The copies of one job, by the node that holds them, and by generation and step."""

    _nodes: dict[str, _Holding] = field(default_factory=dict)
    _generations: dict[int, GenerationCopies] = field(default_factory=dict)

    def replace(self, node: str, copies: Iterable[Copy], settled_generation: int) -> None:
        """Take a node's complete list of copies, in place of the one before."""
        held = self._nodes.setdefault(node, _Holding())
        before = held.copies
        held.copies = {(copy.generation, copy.step, copy.place): copy for copy in copies}
        for key, copy in held.copies.items():
            known = before.pop(key, None)
            if known != copy:
                generation = self._generations.setdefault(copy.generation, GenerationCopies())
                generation.put(copy, known=known is not None)
        self._drop(before.values())
        held.settled_generation = max(held.settled_generation, settled_generation)

    def forget(self, node: str) -> None:
        """Drop what a lost node held."""
        held = self._nodes.pop(node, None)
        self._drop(held.copies.values() if held is not None else ())

    def _drop(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            generation = self._generations[copy.generation]
            generation.drop(copy)
            if not generation.steps:
                del self._generations[copy.generation]

    def settled(self, node: str) -> int:
        """Return the newest generation that the node has settled; -1 when it never reported."""
        held = self._nodes.get(node)
        return -1 if held is None else held.settled_generation

    def copies(self) -> list[Copy]:
        """Return all copies, newest step first."""
        newest_first = sorted(self._generations, reverse=True)
        return [copy for number in newest_first for copy in self._generations[number]]

    def layout(self, generation: int, world_size: int) -> tuple[str, ...]:
        """Return all shards of a generation's state, or () until every rank has a copy reported."""
        known = self._generations.get(generation)
        if known is None or world_size == 0:
            return ()
        shards: dict[int, tuple[str, ...]] = {copy.rank: copy.shards for copy in known}
        if len(shards) < world_size:
            return ()
        return tuple(sorted({name for names in shards.values() for name in names}))

    def recoverable(self, generation: int, members: Sequence[str], world_size: int) -> Recoverable:
        """Return the newest step of a generation that survives the loss of any one node.

        A job of one node cannot have that: there a verified copy of every rank is enough.
        """
        known = self._generations.get(generation)
        if known is None:
            return Recoverable(None, ())
        nodes_needed = 2 if len(set(members)) > 1 else 1
        newest = known.newest_on(nodes_needed, world_size)
        return Recoverable(newest, tuple(known.passed(world_size, newest)))

    def choose(
        self,
        branch: Sequence[BranchPoint],
        reachable: Mapping[str, str],
        *,
        expected: bool,
    ) -> Choice:
        """Return the newest step of the branch that reachable copies cover completely.

        ``reachable`` maps nodes to the address of their bulk listener. ``expected`` says that the
        job has had a snapshot: then finding none is a loss, not a fresh start.
        """
        best: Choice | None = None
        for point in branch:
            choice = self._choose_of(point, reachable)
            if choice is not None and (best is None or (choice.step or 0) > (best.step or 0)):
                best = choice
        if best is not None:
            return best
        if not expected:
            return Choice(None, (), "", "no snapshot was committed yet")
        return Choice(None, (), self._what_is_missing(branch, reachable), "no step is whole")

    def _choose_of(self, point: BranchPoint, reachable: Mapping[str, str]) -> Choice | None:
        known = self._generations.get(point.generation, GenerationCopies())
        for step in sorted(known.steps, reverse=True):
            if point.through_step is not None and step > point.through_step:
                continue
            held = [copy for copy in known.steps[step].ordered() if copy.node in reachable]
            if held and not _missing(point, held):
                sources = tuple(_source(copy, reachable[copy.node]) for copy in held)
                nodes = len({copy.node for copy in held})
                return Choice(
                    step, sources, "", f"step {step} is the newest that {nodes} nodes hold whole"
                )
        return None

    def _what_is_missing(self, branch: Sequence[BranchPoint], reachable: Mapping[str, str]) -> str:
        if not branch:
            return "the job has no branch"
        point = branch[-1]
        known = self._generations.get(point.generation, GenerationCopies())
        here = [copy for copy in known if copy.node in reachable]
        missing = _missing(point, here)
        if not missing:
            return "every shard has a copy, but no step has all of them"
        shown = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
        return f"no reachable copy of {shown}"


def _missing(point: BranchPoint, copies: Sequence[Copy]) -> list[str]:
    """Name what these copies lack of a whole step."""
    if point.shards:
        held = {name for copy in copies for name in copy.shards}
        return [name for name in point.shards if name not in held]
    ranks = {copy.rank for copy in copies}
    return [f"rank {rank}" for rank in range(point.world_size) if rank not in ranks]


def _source(copy: Copy, bulk_address: str) -> ShardSource:
    return ShardSource(
        copy.node,
        bulk_address,
        copy.generation,
        copy.rank,
        copy.step,
        copy.root_hash,
        copy.size_bytes,
        copy.shards,
    )
