"""Stuck operations: those that all members have come to, and that nobody completes. Pure.

The waiting of a job may end in one: then a link between its members is broken, or the GPU of one
of them stands before it, and without the times of kernels nobody can tell which.
"""

from collections.abc import Iterable

from everstep_common.hangs.judging.completion import reason_behind
from everstep_common.hangs.judging.frontiers import Frontiers, GroupFrontier, is_p2p
from everstep_common.hangs.judging.wait_graph import WaitGraph
from everstep_common.hangs.reports.rank_report import Operation


def stuck_ranks_of(frontiers: Frontiers, graph: WaitGraph) -> frozenset[int]:
    """Return the members of the operations at whose end all of them stand."""
    at: dict[tuple[int, int], set[int]] = {}
    found: set[int] = set()
    for rank, (group, operation) in graph.heads.items():
        if not is_p2p(operation):
            at.setdefault((id(group), operation.sequence), set()).add(rank)
        elif _meets(graph, rank, operation):
            found.add(rank)
    groups = {id(group): group for group in frontiers.groups}
    for (number, sequence), ranks in at.items():
        if _is_stuck(groups[number], sequence, ranks):
            found |= ranks
    return frozenset(found)


def _meets(graph: WaitGraph, rank: int, operation: Operation) -> bool:
    """Return whether the other end of a send or receive stands in one with this rank as well."""
    other = graph.heads.get(operation.peer) if operation.peer is not None else None
    return other is not None and other[1].peer == rank


def _is_stuck(group: GroupFrontier, sequence: int, ranks: Iterable[int]) -> bool:
    if group.unknown or not group.named:
        return False
    standing = set(ranks)
    return all(
        enqueued >= sequence and (rank in standing or (group.told[rank].completed or 0) >= sequence)
        for rank, enqueued in group.enqueued.items()
    )


def left_alone(ranks: Iterable[int], graph: WaitGraph) -> dict[int, str]:
    """Return the ranks that stand in a collective which others have completed; with reasons."""
    found = {}
    for rank in ranks:
        group, operation = graph.heads[rank]
        newest = max(one.completed or 0 for one in group.told.values())
        if not is_p2p(operation) and newest >= operation.sequence:
            found[rank] = reason_behind(group, operation, newest)
    return found
