"""Completion frontier: ranks whose GPU did not complete what their peers have. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from everstep_common.hangs.judging.contradictions import ROOTED
from everstep_common.hangs.judging.frontiers import Frontiers, GroupFrontier, first_collective
from everstep_common.hangs.reports.rank_report import Operation, OperationState

# One is what differs where a hang cuts the last collective in two; two cannot be, for nobody
# completes the next one before all have taken part in it.
_LAG = 2


def completion_laggards(frontiers: Frontiers) -> dict[int, str]:
    """Return ranks that have not completed what peers have, two collectives back; with reasons.

    Not in groups with sends and receives, which each rank counts for itself.
    """
    found: dict[int, str] = {}
    for group in frontiers.groups:
        if group.waiting and not group.has_p2p:
            for rank, reason in _of_group(group):
                found.setdefault(rank, reason)
    return found


def _of_group(group: GroupFrontier) -> Iterator[tuple[int, str]]:
    completed = {rank: group.told[rank].completed or 0 for rank in group.enqueued}
    newest = _newest(completed.values())
    behind = [rank for rank in group.waiting if newest - completed[rank] >= _LAG]
    few = 2 * len(behind) < len(group.enqueued)
    for rank in behind:
        first = first_collective(group.told[rank])
        if first is not None and (few or first.name not in ROOTED):
            yield rank, reason_behind(group, first, newest)


def _newest(completed: Iterable[int]) -> int:
    """Return the last collective that half of a group say to have completed.

    The word of one rank would make all others late.
    """
    ordered = sorted(completed, reverse=True)
    return ordered[max(1, len(ordered) // 2) - 1]


def behind_their_peers(frontiers: Frontiers) -> dict[int, str]:
    """Return ranks that wait in a collective which others have completed; with reasons."""
    found: dict[int, str] = {}
    for group in frontiers.groups:
        if not group.waiting or group.has_p2p:
            continue
        newest = _newest(group.told[rank].completed or 0 for rank in group.enqueued)
        for rank in group.waiting:
            first = first_collective(group.told[rank])
            if first is not None and first.name not in ROOTED and first.sequence <= newest:
                found.setdefault(rank, reason_behind(group, first, newest))
    return found


def reason_behind(group: GroupFrontier, first: Operation, newest: int) -> str:
    """Return what a rank shows whose peers have completed what it waits in."""
    return (
        f"its GPU did not complete {first.name} #{first.sequence} of"
        f" {group.description} ({group.text:.60}), and others have completed #{newest}"
    )


def not_started(heads: Mapping[int, tuple[GroupFrontier, Operation]]) -> dict[int, str]:
    """Return ranks whose GPU has not started the collective that their peers run; with reasons.

    ``heads`` are the operations that the ranks wait in first. Only recorders with timing tell it.
    """
    together: dict[tuple[int, int], list[int]] = {}
    for rank, (group, operation) in heads.items():
        together.setdefault((id(group), operation.sequence), []).append(rank)
    found = {}
    for ranks in together.values():
        late = [rank for rank in ranks if heads[rank][1].state is OperationState.SCHEDULED]
        if 2 * len(late) < len(ranks):
            for rank in late:
                operation = heads[rank][1]
                found[rank] = (
                    f"its GPU has not started {operation.name} #{operation.sequence}, which its"
                    " peers run"
                )
    return found
