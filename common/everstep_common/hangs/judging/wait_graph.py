"""Wait graph: which rank waits for which to enqueue an operation. Pure.

Edges are kept for each group and frontier, never for each pair, so that a job of 16,384 ranks with
groups of 16,384 members takes as long as there are memberships.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from everstep_common.hangs.judging.frontiers import (
    Frontiers,
    GroupFrontier,
    first_collective,
    is_p2p,
    oldest,
)
from everstep_common.hangs.reports.rank_report import GroupReport, Operation


@dataclass(frozen=True, slots=True)
class PeerWait:
    """A rank waits for another to post the other end of a send or recv."""

    waiting: int
    awaited: int
    group: GroupFrontier
    operation: Operation


# Operations of one group that its members stand at; an honest group has one or two of them.
_HEADS_MAX = 32
# A rank's operation and its group.
Head = tuple[GroupFrontier, Operation]


@dataclass(frozen=True, slots=True, eq=False)
class HeldUp:
    """The ranks that hold an operation up, and those that wait in it: one node of the graph."""

    ranks: tuple[int, ...]
    waiting: tuple[int, ...]


@dataclass(slots=True)
class WaitGraph:
    """Graph of waits; it has an edge only where both ends told what they have enqueued."""

    # By rank, the groups in which it waits in a collective that a member has not enqueued.
    collective: dict[int, list[GroupFrontier]] = field(default_factory=dict)
    peer: dict[int, list[PeerWait]] = field(default_factory=dict)
    # Ranks that somebody waits for: in a collective, and to post a send or recv.
    awaited: set[int] = field(default_factory=set)
    awaited_in_collective: set[int] = field(default_factory=set)
    # Sends and receives whose other end told nothing.
    unanswered: list[PeerWait] = field(default_factory=list)
    # The operation that each rank waits in first, and by rank the members that have enqueued it as
    # well and wait in another one first: their GPUs are held up there.
    heads: dict[int, Head] = field(default_factory=dict)
    held_up: dict[int, HeldUp] = field(default_factory=dict)
    # Ranks that others have enqueued an operation with, and that are held up.
    awaited_by_gpu: set[int] = field(default_factory=set)
    # Ranks whose GPU is where that of a peer is, while the peer's CPU has come farther.
    late: set[int] = field(default_factory=set)

    def waits(self, rank: int) -> bool:
        """Return whether a rank waits for another that is known not to be there."""
        return rank in self.collective or rank in self.peer

    def sinks(self) -> set[int]:
        """Return the ranks that others wait for and that wait for nobody themselves."""
        awaited = self.awaited | self.awaited_by_gpu
        free = {rank for rank in awaited if not self.waits(rank) and rank not in self.held_up}
        return free | {rank for rank in self.late if not self.waits(rank)}


def wait_graph_of(frontiers: Frontiers, silent: frozenset[int]) -> WaitGraph:
    """Return who waits for whom. ``silent`` are ranks that told nothing."""
    graph = WaitGraph()
    for group in frontiers.groups:
        if group.waiting:
            _add_collective_waits(graph, group)
        _add_peer_waits(graph, group, silent)
    for rank, groups in frontiers.of_rank.items():
        if waits := first_waits(groups, rank):
            graph.heads[rank] = oldest(waits)
    _add_held_up(graph)
    for group in frontiers.groups:
        # With members that told nothing, few is not to be told from many.
        if group.waiting and not group.unknown:
            graph.late.update(_late(graph, group))
    return graph


def _late(graph: WaitGraph, group: GroupFrontier) -> Iterator[int]:
    """Yield the few members that are behind the others which wait in the same operation first."""
    heads = {
        rank: (id(head[0]), head[1].sequence)
        for rank in group.enqueued
        if (head := graph.heads.get(rank)) is not None and not is_p2p(head[1])
    }
    together: dict[tuple[int, int], list[int]] = {}
    for rank, place in heads.items():
        together.setdefault(place, []).append(rank)
    for ranks in together.values():
        farthest = max(group.enqueued[rank] for rank in ranks)
        late = [rank for rank in ranks if group.enqueued[rank] < farthest]
        if len(late) <= max(1, len(ranks) // 4) and 2 * len(late) < len(ranks):
            yield from late


def _add_held_up(graph: WaitGraph) -> None:
    """A rank whose peers have all enqueued its operation waits for those that are not at it."""
    at: dict[int, dict[int, list[int]]] = {}
    for rank, (group, operation) in graph.heads.items():
        if is_p2p(operation):
            _add_held_peer(graph, rank, group, operation)
        else:
            at.setdefault(id(group), {}).setdefault(operation.sequence, []).append(rank)
    for operations in at.values():
        # Of a group whose members all say that they stand elsewhere, the first few are enough.
        for ranks in sorted(operations.values(), key=len, reverse=True)[:_HEADS_MAX]:
            _add_held_members(graph, ranks)


def _add_held_members(graph: WaitGraph, ranks: list[int]) -> None:
    group, operation = graph.heads[ranks[0]]
    together = set(ranks)
    held = tuple(
        rank
        for rank, enqueued in group.enqueued.items()
        if enqueued >= operation.sequence
        and rank not in together
        and (group.told[rank].completed or 0) < operation.sequence
    )
    if held:
        graph.awaited_by_gpu.update(held)
        graph.held_up.update(dict.fromkeys(ranks, HeldUp(held, tuple(ranks))))


def _add_held_peer(graph: WaitGraph, rank: int, group: GroupFrontier, operation: Operation) -> None:
    peer = operation.peer
    head = graph.heads.get(peer) if peer is not None else None
    # What two ranks send and receive between them runs at once, in whichever group it is.
    if peer is None or head is None or head[1].peer == rank:
        return
    other = group.told.get(peer)
    if other is not None and any(one.peer == rank for one in other.pending):
        graph.awaited_by_gpu.add(peer)
        graph.held_up[rank] = HeldUp((peer,), (rank,))


def _add_collective_waits(graph: WaitGraph, group: GroupFrontier) -> None:
    least = min(group.enqueued.values())
    farthest = group.farthest()
    if least == farthest:
        return
    for rank in group.waiting:
        if group.enqueued[rank] > least:
            graph.collective.setdefault(rank, []).append(group)
    behind = group.behind(farthest)
    graph.awaited.update(behind)
    graph.awaited_in_collective.update(behind)


def _add_peer_waits(graph: WaitGraph, group: GroupFrontier, silent: frozenset[int]) -> None:
    for rank, one in group.told.items():
        if one.pending:
            _add_peer_waits_of(graph, group, rank, silent)


def _add_peer_waits_of(
    graph: WaitGraph, group: GroupFrontier, rank: int, silent: frozenset[int]
) -> None:
    one = group.told[rank]
    for operation in one.pending:
        peer = operation.peer
        if peer is None or peer == rank:
            continue
        other = group.told.get(peer)
        wait = PeerWait(rank, peer, group, operation)
        if other is None:
            if peer in silent:
                graph.unanswered.append(wait)
        elif not _has_posted(other, one, operation, rank, len(group.members)):
            graph.peer.setdefault(rank, []).append(wait)
            graph.awaited.add(peer)


def _has_posted(
    other: GroupReport, own: GroupReport, operation: Operation, rank: int, size: int
) -> bool:
    """Return whether the other end has enqueued its part of a send or recv, or may have."""
    if size == 2:
        # Each operation of one has its part at the other, so both count the same.
        enqueued = other.p2p_enqueued
        if enqueued is None:
            # Without an operation of its own in the recorder: the number of the last one it did,
            # unless that is as small as the collectives'.
            enqueued = other.enqueued
            if enqueued is None or enqueued <= (own.enqueued or 0) + 1:
                return True
        return operation.sequence <= enqueued
    wanted = "recv" if operation.name == "send" else "send"
    return any(one.name == wanted and one.peer == rank for one in other.pending)


def distances(graph: WaitGraph, sources: Iterable[int]) -> dict[int, int]:
    """Return of each rank whose waiting leads to one of ``sources`` how many steps it takes."""
    waiting_in: dict[int, list[GroupFrontier]] = {}
    groups = {id(one): one for found in graph.collective.values() for one in found}
    for group in groups.values():
        for rank in group.enqueued:
            waiting_in.setdefault(rank, []).append(group)
    peers: dict[int, list[int]] = {}
    held = _held_by(graph)
    for waits in graph.peer.values():
        for wait in waits:
            peers.setdefault(wait.awaited, []).append(wait.waiting)
    # How many of a group's waiting ranks, farthest first, have been reached.
    reached: dict[int, int] = {}
    steps = dict.fromkeys(sources, 0)
    queue = deque(steps)
    while queue:
        rank = queue.popleft()
        ahead = _ahead(waiting_in.get(rank, ()), rank, reached)
        # An operation that is held up is reached once, by the first that holds it.
        behind = [one for op in held.pop(rank, ()) for one in op.waiting if one not in steps]
        for one in [*peers.get(rank, ()), *behind, *ahead]:
            if one not in steps:
                steps[one] = steps[rank] + 1
                queue.append(one)
    return steps


def _held_by(graph: WaitGraph) -> dict[int, list[HeldUp]]:
    """Return the operations that each rank holds up."""
    found: dict[int, list[HeldUp]] = {}
    for held in {id(one): one for one in graph.held_up.values()}.values():
        for rank in held.ranks:
            found.setdefault(rank, []).append(held)
    return found


def _ahead(groups: Iterable[GroupFrontier], rank: int, reached: dict[int, int]) -> Iterator[int]:
    """Yield the ranks that wait for one in collectives and were not yielded before."""
    for group in groups:
        place = reached.get(id(group), 0)
        own = group.enqueued[rank]
        while place < len(group.waiting) and group.enqueued[group.waiting[place]] > own:
            yield group.waiting[place]
            place += 1
        reached[id(group)] = place


def strongly_connected(graph: WaitGraph) -> list[list[int]]:
    """Return the sets of ranks that wait for one another in a circle and for nobody else.

    Only where every rank that is waited for waits itself. Tarjan's algorithm, on ranks and levels.
    """
    nodes = _Nodes(graph)
    found = _components(nodes)
    return [ranks for ranks in found if len(ranks) > 1]


class _Nodes:
    """Ranks, and for each group its levels: a level leads to the ranks on it, and to the one below.

    A rank that waits leads to the level below its own; so edges are as many as memberships.
    """

    def __init__(self, graph: WaitGraph) -> None:
        self.graph = graph
        self._levels: dict[int, list[int]] = {}
        self._places: dict[int, dict[int, int]] = {}
        self._ranks: dict[tuple[int, int], list[int]] = {}
        for groups in graph.collective.values():
            for group in groups:
                if id(group) not in self._levels:
                    self._add(group)

    def _add(self, group: GroupFrontier) -> None:
        for rank, enqueued in group.enqueued.items():
            self._ranks.setdefault((id(group), enqueued), []).append(rank)
        levels = self._levels[id(group)] = sorted(set(group.enqueued.values()))
        self._places[id(group)] = {level: place for place, level in enumerate(levels)}

    def after(self, node: object) -> list[object]:
        """Return the nodes that a node leads to."""
        if isinstance(node, HeldUp):
            return list(node.ranks)
        if isinstance(node, tuple):
            return self._below(*node)
        assert isinstance(node, int)
        found: list[object] = [wait.awaited for wait in self.graph.peer.get(node, ())]
        if node in self.graph.held_up:
            found.append(self.graph.held_up[node])
        for group in self.graph.collective.get(node, ()):
            place = self._places[id(group)][group.enqueued[node]]
            found.append((id(group), place - 1))
        return found

    def _below(self, group: int, place: int) -> list[object]:
        found: list[object] = list(self._ranks[group, self._levels[group][place]])
        return [*found, (group, place - 1)] if place else found


def _components(nodes: _Nodes) -> list[list[int]]:
    """Return the strongly connected sets that lead to no other, by their ranks."""
    index: dict[object, int] = {}
    low: dict[object, int] = {}
    stack: list[object] = []
    on_stack: set[object] = set()
    component: dict[object, int] = {}
    ends: list[list[int]] = []
    for start in [*nodes.graph.collective, *nodes.graph.peer, *nodes.graph.held_up]:
        if start in index:
            continue
        work: list[tuple[object, Iterator[object]]] = [(start, iter(nodes.after(start)))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, rest = work[-1]
            following = next((one for one in rest if one not in index or one in on_stack), None)
            if following is not None and following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                on_stack.add(following)
                work.append((following, iter(nodes.after(following))))
            elif following is not None:
                low[node] = min(low[node], index[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    ends.append(_closed(node, stack, on_stack, component, len(ends), nodes))
    return [ranks for ranks in ends if ranks]


def _closed(
    node: object,
    stack: list[object],
    on_stack: set[object],
    component: dict[object, int],
    number: int,
    nodes: _Nodes,
) -> list[int]:
    """Take a component off the stack; return its ranks, none where it leads to another."""
    members: list[object] = []
    while not members or members[-1] != node:
        one = stack.pop()
        on_stack.discard(one)
        component[one] = number
        members.append(one)
    if any(component.get(after) != number for one in members for after in nodes.after(one)):
        return []
    return sorted(one for one in members if isinstance(one, int))


def first_waits(groups: Sequence[GroupFrontier], rank: int) -> list[Head]:
    """Return the operations that a rank waits in, the first of each group."""
    found = []
    for group in groups:
        one = group.told[rank]
        if (collective := first_collective(one)) is not None:
            found.append((group, collective))
        found.extend((group, other) for other in one.pending if is_p2p(other))
    return found
