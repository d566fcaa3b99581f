"""Wait cycles: ranks that wait for one another, and which of them does not belong there. Pure."""

from collections.abc import Iterable, Sequence

from everstep_common.hangs.judging import explanation as words
from everstep_common.hangs.judging.case import (
    Case,
    Seen,
    class_of,
    may_wait_for_silent,
    shared_class,
)
from everstep_common.hangs.judging.frontiers import is_p2p
from everstep_common.hangs.judging.process_evidence import (
    in_communication,
)
from everstep_common.hangs.judging.program_faults import few_departed
from everstep_common.hangs.judging.stuck_operations import stuck_ranks_of
from everstep_common.hangs.judging.wait_graph import strongly_connected
from everstep_common.hangs.reports.verdict import (
    Confidence,
    HangClass,
)


def from_wait_cycles(case: Case) -> HangClass | None:
    """Ranks that wait for one another in a circle."""
    found = [one for one in strongly_connected(case.graph) if not _leads_to_silence(case, one)]
    # An operation that all have come to would complete in any order: it ends the waiting, not this.
    if not found or stuck_ranks_of(case.frontiers, case.graph):
        return None
    case.confidence = Confidence.LIKELY
    for ranks in found:
        case.culprits.update(_of_circle(case, ranks))
    if case.culprits:
        return shared_class(case)
    case.suspects = frozenset(rank for ranks in found for rank in ranks)
    stand_there = all(in_communication(case.reports[rank]) for rank in case.suspects)
    case.confidence = Confidence.LIKELY if stand_there else Confidence.UNSURE
    return HangClass.DESYNC


def _of_circle(case: Case, ranks: Sequence[int]) -> dict[int, Seen]:
    """Return which of the ranks in a circle hold the others back, where something tells it."""
    if outside := _outside_of(case, ranks):
        # What they have enqueued runs beside them, so they seem to wait; they stand elsewhere.
        return {rank: class_of(case, rank) for rank in outside}
    if departed := few_departed(case, ranks):
        return departed
    late = _late_in_collectives(case, ranks)
    # Of several one left something out, and the others wait for their receives in good order.
    return {rank: _late_class(case, rank) for rank in late} if len(late) == 1 else {}


def _late_class(case: Case, rank: int) -> Seen:
    """Return in which way a rank that has posted a receive holds back those in a collective."""
    if not in_communication(case.reports[rank]):
        return class_of(case, rank)
    # It does stand in the receive, so it left the collective out.
    return HangClass.DESYNC, f"{words.of_frontier(case.frontiers, rank)}; it waits in a receive"


def _outside_of(case: Case, ranks: Sequence[int]) -> list[int]:
    """Return the ranks of a circle that are not in communication, if all others are."""
    inside = {rank: in_communication(case.reports[rank]) for rank in ranks}
    outside = [rank for rank, one in inside.items() if one is False]
    return outside if 2 * len(outside) <= len(ranks) and None not in inside.values() else []


def _leads_to_silence(case: Case, ranks: Iterable[int]) -> bool:
    """Return whether a rank of a circle may wait for a rank outside that told nothing."""
    return any(rank in case.graph.heads and may_wait_for_silent(case, rank) for rank in ranks)


def _late_in_collectives(case: Case, ranks: Iterable[int]) -> list[int]:
    """Return the ranks of a circle that wait in receives only, and that collectives wait for.

    A receive may be posted long before it is needed, so it does not say that its rank stands there.
    """
    return [
        rank
        for rank in ranks
        if rank in case.graph.awaited_in_collective
        and rank not in case.graph.collective
        and rank in case.graph.peer
        and all(one.operation.name == "recv" for one in case.graph.peer[rank])
        and is_p2p(case.graph.heads[rank][1])
    ]
