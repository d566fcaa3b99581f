"""Silent ranks: where a rank that told nothing is the only explanation of a wait. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from everstep_common.hangs.judging.contradictions import ROOTED
from everstep_common.hangs.judging.frontiers import Frontiers, GroupFrontier, is_p2p
from everstep_common.hangs.judging.wait_graph import WaitGraph
from everstep_common.hangs.reports.rank_report import Operation

# Operations of one group that members wait in first; an honest group has one or two of them.
_OPERATIONS_MAX = 32


class Waits(Protocol):
    """What is known of who waits in what."""

    frontiers: Frontiers
    graph: WaitGraph
    silent: frozenset[int]
    world_size: int

    def heads(self, rank: int) -> tuple[GroupFrontier, Operation] | None:
        """Return the operation that a rank waits in first of all."""
        ...


@dataclass(frozen=True, slots=True)
class MissingDumps:
    """What the ranks that told nothing explain."""

    # Ranks that are the only explanation of a wait, and those of which one or another is.
    forced: frozenset[int]
    possible: frozenset[int]
    # How many members of the operations of the former would be without a dump by mere chance.
    by_chance: float


def explained_by_silence(waits: Waits) -> MissingDumps:
    """Return the silent ranks that must hold others back, and those of which one or another does.

    A wait asks for a silent rank only if nothing that is known explains it: no member is behind,
    and every member that told waits in the same operation first, so none is held up elsewhere.
    Where dumps of ranks are missing that nobody waits for, one of an innocent may be missing too.
    """
    found = list(_unexplained(waits))
    forced, possible = _solved({frozenset(one) for one, _ in found})
    idle = waits.silent - forced - frozenset[int]().union(*(one for one, _ in found))
    members = max((size for one, size in found if one & forced), default=0)
    by_chance = members * len(idle) / max(1, waits.world_size)
    return MissingDumps(frozenset(forced), possible, by_chance)


def _solved(sets: set[frozenset[int]]) -> tuple[set[int], frozenset[int]]:
    forced = {next(iter(one)) for one in sets if len(one) == 1}
    left = [one for one in sets if not one & forced]
    if not left:
        return forced, frozenset()
    common = frozenset.intersection(*left)
    if len(common) == 1:
        return forced | common, frozenset()
    return forced, common or frozenset.union(*left)


def _unexplained(waits: Waits) -> Iterator[tuple[set[int], int]]:
    """Yield the silent ranks that may explain a wait, and of how many members it is one."""
    seen: dict[int, set[int]] = {}
    for rank in waits.frontiers.of_rank:
        head = None if waits.graph.waits(rank) else waits.heads(rank)
        if head is None:
            continue
        group, operation = head
        if is_p2p(operation):
            if operation.peer in waits.silent:
                yield {operation.peer}, 2
            continue
        asked = seen.setdefault(id(group), set())
        if operation.sequence in asked or len(asked) >= _OPERATIONS_MAX:
            continue
        asked.add(operation.sequence)
        # Of a group whose members nobody has told, any silent rank may be one.
        unknown = waits.silent & set(group.unknown) if group.named else set(waits.silent)
        if unknown and not _explained(waits, group, operation):
            yield set(unknown), len(group.members)


def _explained(waits: Waits, group: GroupFrontier, operation: Operation) -> bool:
    for rank in group.enqueued:
        if (group.told[rank].completed or 0) >= operation.sequence:
            if operation.name in ROOTED:
                continue
            return True  # all have come to it, also those that told nothing
        head = waits.heads(rank)
        if head is None or head[0] is not group or head[1].sequence != operation.sequence:
            return True
    return False
