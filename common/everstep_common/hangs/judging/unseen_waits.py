"""Unseen waits: ranks in communication of which no recorder tells, as gloo's sends. Pure."""

from collections.abc import Collection

from everstep_common.hangs.judging import explanation as words
from everstep_common.hangs.judging.case import Case, at_place, data_moves, shared_class
from everstep_common.hangs.judging.mismatches import departed_in_p2p
from everstep_common.hangs.judging.process_evidence import (
    in_communication,
    in_send_or_receive,
    suspicion,
    waits_for_peers,
)
from everstep_common.hangs.reports.verdict import (
    Confidence,
    HangClass,
)

# Of ranks without any frontier, so few may stand elsewhere than all others to be called outliers.
_OUTLIERS = 0.25


def waits_unseen(case: Case, rank: int) -> bool:
    """Return whether a rank is in communication of which its recorder tells nothing."""
    report = case.reports[rank]
    kind = case.culprits[rank][0]
    return kind is HangClass.CPU_SIDE and in_communication(report) is True and not case.heads(rank)


def may_wait_unseen(case: Case, rank: int) -> bool:
    """Return whether a rank does sends or receives with gloo, and no stack says where it stands."""
    told = [group.told[rank] for group in case.frontiers.of_rank.get(rank, ())]
    by_gloo = any(one.p2p_enqueued is not None and one.p2p_completed is None for one in told)
    return by_gloo and in_communication(case.reports[rank]) is None


def unseen_wait(case: Case, waiting: set[int]) -> HangClass:
    """The waiting leads to ranks that wait in sends or receives of which no recorder tells."""
    case.culprits.clear()
    if data_moves(case):
        return HangClass.NO_WAIT
    case.confidence = Confidence.LIKELY
    for rank, reason in departed_in_p2p(case.frontiers).items():
        case.culprits[rank] = (HangClass.DESYNC, reason)
    elsewhere = _outside_communication(case)
    for rank in () if case.culprits else elsewhere:
        case.culprits[rank] = (
            HangClass.CPU_SIDE,
            f"it is not in communication{at_place(case, rank)}",
        )
    if case.culprits:
        return shared_class(case)
    case.suspects = frozenset(waiting)
    # Everybody waits in communication, so some of it does not fit together.
    inside = all(
        in_communication(report) or (rank in case.graph.heads and in_communication(report) is None)
        for rank, report in case.reports.items()
    )
    if not inside or case.silent:
        case.confidence = Confidence.UNSURE
        return HangClass.UNKNOWN
    return _program_or_network(case, waiting)


def _program_or_network(case: Case, in_p2p: Collection[int]) -> HangClass:
    """All wait, some in sends and receives: the program's fault, or a network's between nodes."""
    nodes = {report.node for report in case.reports.values()}
    one_node = len(nodes) == 1 and "" not in nodes
    case.suspects = frozenset(in_p2p)
    case.confidence = Confidence.LIKELY if one_node else Confidence.UNSURE
    case.sentence = words.of_unrecorded_waits(case.reports, in_p2p, one_node=one_node)
    return HangClass.DESYNC


def from_stacks(case: Case) -> HangClass | None:
    """No recorder tells of a wait: a few ranks are not in communication while the others are."""
    held = {r: seen for r, report in case.reports.items() if (seen := suspicion(report))}
    if held and len(held) <= max(1, _OUTLIERS * case.world_size) and _hold_back(case, held):
        case.culprits.update(held)
        case.confidence = Confidence.LIKELY
        return shared_class(case)
    for rank in _outside_communication(case):
        told = f"it is not in communication while the others are{at_place(case, rank)}"
        case.culprits[rank] = (HangClass.CPU_SIDE, told)
    if not case.culprits:
        return _from_unrecorded_waits(case)
    case.confidence = Confidence.LIKELY
    return HangClass.CPU_SIDE


def _hold_back(case: Case, held: Collection[int]) -> bool:
    """Return whether others wait for ranks that do not go on.

    A rank that makes no process group of torch may wait for nobody for long, so all others have to
    be seen, and to wait.
    """
    if any(case.reports[rank].process.answers_ping is not None for rank in held):
        return True
    others = [report for rank, report in case.reports.items() if rank not in held]
    seen = len(case.reports) == case.world_size
    return seen and bool(others) and all(map(waits_for_peers, others))


def _from_unrecorded_waits(case: Case) -> HangClass | None:
    """All ranks wait in communication, and no recorder tells of it: sends and receives of gloo."""
    whole = len(case.reports) == case.world_size
    inside = whole and all(in_communication(report) for report in case.reports.values())
    in_p2p = {rank for rank, report in case.reports.items() if in_send_or_receive(report)}
    if not inside or not in_p2p:
        return None
    if data_moves(case):
        return HangClass.NO_WAIT
    return _program_or_network(case, in_p2p)


def _outside_communication(case: Case) -> list[int]:
    inside = {rank: in_communication(report) for rank, report in case.reports.items()}
    known = [rank for rank, one in inside.items() if one is not None]
    outside = [rank for rank in known if not inside[rank]]
    few = len(outside) <= max(1, _OUTLIERS * len(known))
    return sorted(outside) if few and len(outside) < len(known) else []
