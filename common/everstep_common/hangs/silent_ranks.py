"""Silent ranks: where a rank that told nothing is the only explanation of a wait. Pure."""

from collections.abc import Iterator
from typing import Protocol

from everstep_common.hangs.frontiers import Frontiers, GroupFrontier, is_p2p
from everstep_common.hangs.rank_report import Operation
from everstep_common.hangs.wait_graph import WaitGraph

# Operations of one group that members wait in first; an honest group has one or two of them.
_OPERATIONS_MAX = 32


class Waits(Protocol):
    """What is known of who waits in what."""

    frontiers: Frontiers
    graph: WaitGraph
    silent: frozenset[int]

    def heads(self, rank: int) -> tuple[GroupFrontier, Operation] | None:
        """Return the operation that a rank waits in first of all."""
        ...


def explained_by_silence(waits: Waits) -> tuple[set[int], frozenset[int]]:
    """Return the silent ranks that must hold others back, and those of which one or another does.

    A wait asks for a silent rank only if nothing that is known explains it: no member is behind,
    and every member that told waits in the same operation first, so none is held up elsewhere.
    """
    sets = {frozenset(found) for found in _unexplained(waits)}
    forced = {next(iter(one)) for one in sets if len(one) == 1}
    left = [one for one in sets if not one & forced]
    if not left:
        return forced, frozenset()
    common = frozenset.intersection(*left)
    if len(common) == 1:
        return forced | common, frozenset()
    return forced, common or frozenset.union(*left)


def _unexplained(waits: Waits) -> Iterator[set[int]]:
    seen: dict[int, set[int]] = {}
    for rank in waits.frontiers.of_rank:
        head = None if waits.graph.waits(rank) else waits.heads(rank)
        if head is None:
            continue
        group, operation = head
        if is_p2p(operation):
            if operation.peer in waits.silent:
                yield {operation.peer}
            continue
        asked = seen.setdefault(id(group), set())
        if operation.sequence in asked or len(asked) >= _OPERATIONS_MAX:
            continue
        asked.add(operation.sequence)
        # Of a group whose members nobody has told, any silent rank may be one.
        unknown = waits.silent & set(group.unknown) if group.named else set(waits.silent)
        if unknown and not _explained(waits, group, operation):
            yield set(unknown)


def _explained(waits: Waits, group: GroupFrontier, operation: Operation) -> bool:
    for rank in group.enqueued:
        if (group.told[rank].completed or 0) >= operation.sequence:
            continue
        head = waits.heads(rank)
        if head is None or head[0] is not group or head[1].sequence != operation.sequence:
            return True
    return False
