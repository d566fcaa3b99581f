"""Order conflicts: two ranks that call the operations of their groups in different orders. Pure.

A rank that waits in an operation of one group, and calls one of another group only after it, has
another order than a rank that has called the latter and not the former. Both are of one program, so
one of the two left an operation out, or changed two.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from everstep_common.hangs.judging.frontiers import (
    Frontiers,
    GroupFrontier,
    first_collective,
    is_p2p,
)
from everstep_common.hangs.judging.wait_graph import Head

# Ranks of a group that are compared, behind and waiting: who departed is seen by few. And so many
# comparisons in all, for groups that were forged.
_COMPARED = 32
_HEADS_MAX = 64
_COMPARISONS_MAX = 200_000


@dataclass(frozen=True, slots=True)
class OrderConflict:
    """Two ranks with different orders: one waits in an operation, the other has left it behind."""

    early: int
    waiting: int
    group: GroupFrontier
    sequence: int
    # What the one has called before, and the other has not, or only later.
    other: GroupFrontier


def order_conflicts_of(frontiers: Frontiers, heads: Mapping[int, Head]) -> list[OrderConflict]:
    """Return the pairs of ranks with different orders, as far as they are compared.

    ``heads`` are the operations that each rank has called first of those that it waits in.
    """
    left = _COMPARISONS_MAX
    found = list(_of_heads(heads))
    for group in frontiers.groups:
        if not group.waiting or group.has_p2p:
            continue
        for rank in group.behind(group.farthest())[:_COMPARED]:
            others = [one for one in frontiers.of_rank[rank] if _is_comparable(one, group, rank)]
            left -= len(others) * _COMPARED
            if left < 0:
                return found
            found += _of_rank(rank, group, others)
    return found


def _of_heads(heads: Mapping[int, Head]) -> Iterator[OrderConflict]:
    """Yield pairs that have both called two operations, each of them the other one first."""
    at: dict[tuple[int, int], list[int]] = {}
    for rank, (group, operation) in heads.items():
        if not is_p2p(operation) and operation.created_ns and not group.has_p2p:
            at.setdefault((id(group), operation.sequence), []).append(rank)
    for ranks in sorted(at.values(), key=len)[:_HEADS_MAX]:
        for rank in ranks[:_COMPARED]:
            yield from _across(rank, heads, at)


def _across(
    rank: int, heads: Mapping[int, Head], at: Mapping[tuple[int, int], Sequence[int]]
) -> Iterator[OrderConflict]:
    """Yield the ranks whose first operation a rank has called second, and the reverse."""
    group, operation = heads[rank]
    for other, second in _called_too(rank, heads[rank], heads):
        for waiting in at.get((id(other), second), ())[:_COMPARED]:
            own = group.told.get(waiting)
            first = first_collective(own) if own is not None else None
            if first is not None and first.sequence == operation.sequence:
                yield OrderConflict(rank, waiting, other, second, group)


def _called_too(
    rank: int, head: Head, heads: Mapping[int, Head]
) -> Iterator[tuple[GroupFrontier, int]]:
    """Yield the operations of others' heads that a rank waits in as well, in other groups."""
    seen = set()
    for member in head[0].waiting[:_COMPARED]:
        group, operation = heads.get(member, head)
        key = (id(group), operation.sequence)
        if group is head[0] or key in seen or rank not in group.told or is_p2p(operation):
            continue
        seen.add(key)
        first = first_collective(group.told[rank])
        if first is not None and first.sequence == operation.sequence:
            yield group, operation.sequence


def _is_comparable(other: GroupFrontier, group: GroupFrontier, rank: int) -> bool:
    return other is not group and not other.has_p2p and rank in other.enqueued


def _of_rank(
    rank: int, group: GroupFrontier, others: Sequence[GroupFrontier]
) -> Iterator[OrderConflict]:
    for waiting in group.waiting[:_COMPARED]:
        first = first_collective(group.told[waiting])
        if first is None or first.sequence <= group.enqueued[rank]:
            continue
        for other in others:
            if waiting in other.enqueued and _is_early(rank, waiting, other, first.created_ns):
                yield OrderConflict(rank, waiting, group, first.sequence, other)
                break


def _is_early(rank: int, waiting: int, other: GroupFrontier, since_ns: int) -> bool:
    """Return whether a rank has called what another calls only after the time, by its clock."""
    if other.enqueued[rank] > other.enqueued[waiting]:
        return True
    first = first_collective(other.told[waiting])
    if first is None or first.sequence > other.enqueued[rank]:
        return False
    return first.created_ns > since_ns > 0


def who_departed(conflicts: Sequence[OrderConflict]) -> int | None:
    """Return the rank that has part in all conflicts, if no other one has and there are several."""
    if not conflicts:
        return None
    pairs = {frozenset((one.early, one.waiting)) for one in conflicts}
    common = frozenset.intersection(*pairs)
    return next(iter(common)) if len(common) == 1 else None
