"""Contradictions: ranks whose numbers cannot be true beside those of their group. Pure.

A collective is complete only when all members have come to it. So who says that it has completed
one which others say they have not come to is believed only with the majority of the group: one rank
alone could else make all others look late.
"""

from collections.abc import Iterator, Mapping

from everstep_common.hangs.reports.rank_report import GroupReport

# Collectives in which one rank gives and the others take: the giver may be far ahead of a taker
# that is well.
ROOTED = frozenset({"broadcast", "reduce", "scatter", "gather"})
# Where it is not known what was completed, so many of these in a row may have been.
_ROOTED_IN_A_ROW = 8


def contradictions_of(
    group: str, told: Mapping[int, GroupReport], enqueued: Mapping[int, int]
) -> Iterator[tuple[int, str]]:
    """Yield the ranks of a group that are not believed, with the reason.

    ``enqueued`` is how far each has come, of those of which it is known.
    """
    if not enqueued or max((told[rank].completed or 0) for rank in enqueued) <= min(
        enqueued.values()
    ):
        return
    enqueued = {rank: last for rank, last in enqueued.items() if _is_of_collectives(told[rank])}
    if len(enqueued) < 2:
        return
    completed = {rank: _completed_by_all(told[rank]) for rank in enqueued}
    farthest, least = max(completed.values()), min(enqueued.values())
    if farthest <= least:
        return
    # What more than half of them have completed: who has not come to it is not believed.
    ordered = sorted(completed.values(), reverse=True)
    agreed = ordered[len(ordered) // 2]
    for rank, last in enqueued.items():
        if last < agreed:
            yield rank, f"it has not come to #{agreed} of {group}, which most members completed"
    honest = [last for last in enqueued.values() if last >= agreed]
    least = min(honest)
    for rank, last in completed.items():
        if last > least and last > agreed:
            yield rank, f"it has completed #{last} of {group}, to which others have not come"


def _is_of_collectives(one: GroupReport) -> bool:
    """Return whether a rank's numbers count collectives: without an operation they may be others'.

    torch counts sends and receives in the same place.
    """
    return bool(one.done) or any(each.peer is None for each in one.pending)


def _completed_by_all(one: GroupReport) -> int:
    """Return the last collective that a rank has completed and that took all members."""
    completed = one.completed or 0
    name = one.done.partition(" ")[0]
    if name in ROOTED or not name:
        return max(0, completed - _ROOTED_IN_A_ROW)
    return completed
