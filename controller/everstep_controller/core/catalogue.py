"""Which verified copies of a job's state exist, which step they make recoverable, and from where.

A catalogue is rebuilt from what agents report and is never journaled: agents can tell it again.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from everstep_controller.core.facts import BranchPoint, ShardSource


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
    copies: tuple[Copy, ...] = ()
    settled_generation: int = -1


@dataclass(slots=True)
class Catalogue:
    """The copies of one job, by the node that holds them."""

    _nodes: dict[str, _Holding] = field(default_factory=dict)

    def replace(self, node: str, copies: Iterable[Copy], settled_generation: int) -> None:
        """Take a node's complete list of copies, in place of the one before."""
        held = self._nodes.setdefault(node, _Holding())
        held.copies = tuple(copies)
        held.settled_generation = max(held.settled_generation, settled_generation)

    def forget(self, node: str) -> None:
        """Drop what a lost node held."""
        self._nodes.pop(node, None)

    def settled(self, node: str) -> int:
        """Return the newest generation that the node has settled; -1 when it never reported."""
        held = self._nodes.get(node)
        return -1 if held is None else held.settled_generation

    def copies(self) -> list[Copy]:
        """Return all copies, newest step first."""
        every = [copy for held in self._nodes.values() for copy in held.copies]
        return sorted(every, key=lambda c: (-c.generation, -c.step, c.rank, c.replica, c.node))

    def layout(self, generation: int, world_size: int) -> tuple[str, ...]:
        """Return all shards of a generation's state, or () until every rank has a copy reported."""
        shards: dict[int, tuple[str, ...]] = {
            copy.rank: copy.shards for copy in self.copies() if copy.generation == generation
        }
        if world_size == 0 or len(shards) < world_size:
            return ()
        return tuple(sorted({name for names in shards.values() for name in names}))

    def recoverable(self, generation: int, members: Sequence[str], world_size: int) -> Recoverable:
        """Return the newest step of a generation that survives the loss of any one node.

        A job of one node cannot have that: there a verified copy of every rank is enough.
        """
        nodes_needed = 2 if len(set(members)) > 1 else 1
        holders: dict[int, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        for copy in self.copies():
            if copy.generation == generation:
                holders[copy.step][copy.rank].add(copy.node)
        whole = [
            step
            for step, ranks in holders.items()
            if len(ranks) == world_size
            and all(len(nodes) >= nodes_needed for nodes in ranks.values())
        ]
        newest = max(whole, default=None)
        return Recoverable(newest, self._dead_steps(generation, world_size, newest))

    def _dead_steps(self, generation: int, world_size: int, newest: int | None) -> tuple[int, ...]:
        own: dict[int, set[int]] = defaultdict(set)
        for copy in self.copies():
            if copy.generation == generation and not copy.replica:
                own[copy.rank].add(copy.step)
        if len(own) < world_size:
            return ()
        every = {step for steps in own.values() for step in steps}
        return tuple(
            sorted(
                step
                for step in every
                if (newest is None or step > newest)
                and any(step not in steps and max(steps) > step for steps in own.values())
            )
        )

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
        by_step: dict[int, list[Copy]] = defaultdict(list)
        for copy in self.copies():
            on_branch = point.through_step is None or copy.step <= point.through_step
            if copy.generation == point.generation and on_branch and copy.node in reachable:
                by_step[copy.step].append(copy)
        for step in sorted(by_step, reverse=True):
            if not _missing(point, by_step[step]):
                sources = tuple(_source(copy, reachable[copy.node]) for copy in by_step[step])
                nodes = len({copy.node for copy in by_step[step]})
                return Choice(
                    step, sources, "", f"step {step} is the newest that {nodes} nodes hold whole"
                )
        return None

    def _what_is_missing(self, branch: Sequence[BranchPoint], reachable: Mapping[str, str]) -> str:
        if not branch:
            return "the job has no branch"
        point = branch[-1]
        here = [
            copy
            for copy in self.copies()
            if copy.generation == point.generation and copy.node in reachable
        ]
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
