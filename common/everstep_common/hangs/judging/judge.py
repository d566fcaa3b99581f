"""Hang judge: who holds a job back, from the reports of its ranks. Pure.

Two frontiers decide. A rank that others wait for to enqueue an operation, and that waits for
nobody itself, holds them back on its CPU side. A rank that has enqueued what its peers have
completed holds them back on its GPU side. Before both stands what is seen directly (a dead or
stopped process) and ranks that call different operations; after both, ranks that told nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from everstep_common.hangs.judging import explanation as words
from everstep_common.hangs.judging.completion import (
    behind_their_peers,
    completion_laggards,
    not_started,
)
from everstep_common.hangs.judging.frontiers import Frontiers, GroupFrontier, frontiers_of, is_p2p
from everstep_common.hangs.judging.known_software import known_fault, sentence_of
from everstep_common.hangs.judging.mismatches import Mismatch, departed_in_p2p, mismatches_of
from everstep_common.hangs.judging.order_conflicts import order_conflicts_of, who_departed
from everstep_common.hangs.judging.process_evidence import (
    ended_by_mismatch,
    gave_up_waiting,
    in_communication,
    in_send_or_receive,
    process_class,
    sends_data,
    suspicion,
    timed_out,
    where,
)
from everstep_common.hangs.judging.silent_ranks import explained_by_silence
from everstep_common.hangs.judging.stuck_operations import left_alone, stuck_ranks_of
from everstep_common.hangs.judging.wait_graph import WaitGraph, knots, wait_graph_of
from everstep_common.hangs.reports.rank_report import EvidenceSource, Operation, RankHangReport
from everstep_common.hangs.reports.verdict import (
    CULPRITS_MAX,
    Confidence,
    Culprit,
    HangClass,
    HangVerdict,
)
from everstep_common.printable import printable

# Of ranks without any frontier, so few may stand elsewhere than all others to be called outliers.
_OUTLIERS = 0.25
# A rank without a dump is named where fewer than this many of its operation's members would have
# none for the same reason as ranks that nobody waits for.
_BY_CHANCE = 0.1


Seen = tuple[HangClass, str]


@dataclass(slots=True)
class Case:
    """Everything that is known of one hang, and what follows from it step by step."""

    reports: Mapping[int, RankHangReport]
    world_size: int
    frontiers: Frontiers
    # Ranks that told no operation, and those of them of which something false was told.
    silent: frozenset[int]
    graph: WaitGraph
    # Ranks that wait in a collective which others have completed, with the reason.
    behind: Mapping[int, str]
    # Class and reason by rank, in the order in which they were found.
    culprits: dict[int, Seen] = field(default_factory=dict)
    suspects: frozenset[int] = frozenset()
    mismatch: Mismatch | None = None
    confidence: Confidence = Confidence.CERTAIN
    # What happened, where class, culprits and suspects do not say it.
    sentence: str = ""
    # Whether it may be told in which functions ranks are.
    with_frames: bool = True

    def heads(self, rank: int) -> tuple[GroupFrontier, Operation] | None:
        """Return the operation that a rank waits in first of all."""
        return self.graph.heads.get(rank)


def judge(
    reports: Iterable[RankHangReport], world_size: int = 0, *, with_frames: bool = True
) -> HangVerdict:
    """Return who holds a job back.

    ``world_size`` is the number of its ranks, where somebody else than the ranks knows it. One
    report for each rank; a rank that is not there told nothing. Without ``with_frames`` the verdict
    is for everybody: it does not tell in which functions ranks are.
    """
    case = _case(reports, world_size)
    case.with_frames = with_frames
    for find in _FINDINGS:
        if (kind := find(case)) is not None:
            return _verdict(case, _with_who_departed(case, kind))
    return _verdict(case, HangClass.NO_WAIT)


def _case(reports: Iterable[RankHangReport], world_size: int) -> Case:
    known = {report.rank: report for report in reports}
    size = world_size or _claimed_size(known)
    known = {rank: report for rank, report in known.items() if rank < size}
    frontiers = frontiers_of(known, size)
    told = frontiers.of_rank.keys()
    silent = frozenset(rank for rank in range(size) if rank not in told)
    graph = wait_graph_of(frontiers, silent)
    return Case(known, size, frontiers, silent, graph, behind_their_peers(frontiers))


def _claimed_size(reports: Mapping[int, RankHangReport]) -> int:
    """Return the number of ranks that most reports tell, and no less than there are."""
    claims: dict[int, int] = {}
    for report in reports.values():
        claims[report.world_size] = claims.get(report.world_size, 0) + 1
    claimed = max(claims, key=lambda one: (claims[one], one), default=0)
    return max(claimed, max(reports, default=-1) + 1)


# --- one finding after the other: the first that returns a class decides ----------------------


def _from_endings(case: Case) -> HangClass | None:
    """A rank that ended over data that did not fit: the program, whoever ended.

    Where ranks have given up waiting, that is what is left of the operation that they gave up.
    """
    if any(timed_out(one.process) for one in case.reports.values()):
        return None
    ended = {rank for rank, one in case.reports.items() if ended_by_mismatch(one.process)}
    if not ended:
        return None
    _from_mismatches(case)
    if not case.culprits:
        case.suspects |= ended
        case.confidence = Confidence.LIKELY
        case.sentence = words.of_unfit_data(ended)
    return HangClass.DESYNC


def _from_processes(case: Case) -> HangClass | None:
    """Ranks whose process is dead or stopped hold everybody back who waits for them."""
    for rank, report in case.reports.items():
        if (seen := process_class(report)) is not None:
            case.culprits[rank] = seen
    if not case.culprits:
        return None
    # Who waits for one of them in what no recorder tells looks like a culprit itself; who is
    # somewhere else, by its stack, is one.
    # Where one has died, though, those that lost it may be anywhere in what they do about it.
    died = any(kind is HangClass.DEAD for kind, _ in case.culprits.values())
    for rank in _ends(case):
        report = case.reports[rank]
        if suspicion(report) or (in_communication(report) is False and not died):
            case.culprits.setdefault(rank, _class_of(case, rank))
    return _shared_class(case)


def _from_mismatches(case: Case) -> HangClass | None:
    found = mismatches_of(case.frontiers, case.reports)
    if not found:
        return None
    # The one that most ranks have a part in; a culprit that is known before one that is not.
    best = max(found, key=lambda one: (bool(one.culprits), len(one.group.told), -one.sequence))
    case.mismatch = best
    for one in found:
        for rank in one.culprits:
            called = f"{words.of_mismatch(one, rank)}{_at(case, rank)}"
            case.culprits[rank] = (HangClass.DESYNC, called)
    if not case.culprits:
        # Who departed is not known, but that somebody did.
        case.suspects = frozenset(rank for _, ranks in best.called for rank in ranks)
        case.confidence = Confidence.LIKELY
    return HangClass.DESYNC


def _from_orders(case: Case) -> HangClass | None:
    """Ranks that call operations of different groups in different orders: the program."""
    conflicts = order_conflicts_of(case.frontiers, case.graph.heads)
    of_them = {rank for one in conflicts for rank in (one.early, one.waiting)}
    if not conflicts or any(in_communication(case.reports[rank]) is False for rank in of_them):
        return None
    case.confidence = Confidence.LIKELY
    departed = who_departed(conflicts)
    if departed is None:
        case.suspects = frozenset(of_them)
        return HangClass.DESYNC
    told = words.of_order(conflicts[0], departed)
    case.culprits[departed] = (HangClass.DESYNC, f"{told}{_at(case, departed)}")
    return HangClass.DESYNC


def _from_frontiers(case: Case) -> HangClass | None:
    for rank in _ends(case):
        case.culprits[rank] = _class_of(case, rank)
    _add_laggards(case)
    if (stuck := _stuck_together(case)) is not None:
        return stuck
    in_p2p = {rank for rank in case.culprits if _waits_unseen(case, rank)}
    if in_p2p and in_p2p == case.culprits.keys():
        return _unseen_wait(case, in_p2p)
    for rank in in_p2p:
        del case.culprits[rank]
    if any(_may_wait_unseen(case, rank) for rank in case.culprits):
        case.confidence = Confidence.LIKELY
    return _shared_class(case) if case.culprits else None


def _add_laggards(case: Case) -> None:
    behind = case.behind
    late = {rank: behind[rank] for rank in case.culprits if rank in behind}
    for rank, reason in (late | completion_laggards(case.frontiers)).items():
        if gave_up_waiting(case.reports[rank].process):
            continue
        known = case.culprits.get(rank)
        if known is None or known[0] in (HangClass.CPU_SIDE, HangClass.DESYNC):
            case.culprits[rank] = (HangClass.GPU_SIDE, reason)


def _ends(case: Case) -> list[int]:
    """Return the ranks at which the waiting ends: waited for, waiting for nobody, not given up.

    First those that wait in nothing, or are behind their peers; only without them, those that stand
    in an operation together with all its members.
    """
    behind = case.behind.keys()
    sinks = case.graph.sinks() | (behind & (case.graph.awaited_by_gpu | case.graph.awaited))
    ends = [rank for rank in sinks if not gave_up_waiting(case.reports[rank].process)]
    idle_or_late = case.graph.late | behind
    alone = [rank for rank in ends if rank not in case.graph.heads or rank in idle_or_late]
    return sorted(alone)


def _may_wait_for_silent(case: Case, rank: int) -> bool:
    """Return whether the operation that a rank waits in first may lack a rank that told nothing."""
    group, operation = case.graph.heads[rank]
    if operation.peer is not None:
        return operation.peer in case.silent
    if not group.named:
        return bool(case.silent)
    return any(one in case.silent for one in group.unknown)


def _class_of(case: Case, rank: int) -> Seen:
    """Return in which way a rank that is waited for holds the others back."""
    report = case.reports[rank]
    if (seen := process_class(report) or suspicion(report)) is not None:
        return seen
    behind = "others wait for it"
    if len(case.culprits) < CULPRITS_MAX:  # no more are told, and each takes a look at its groups
        behind = words.of_frontier(case.frontiers, rank)
    inside = in_communication(report)
    if report.departure and (inside or (inside is None and rank in case.graph.heads)):
        return HangClass.DESYNC, f"{behind}; {_departed(report)}"
    return HangClass.CPU_SIDE, f"{behind}{_at(case, rank)}"


def _stuck_together(case: Case) -> HangClass | None:
    """Several ranks that nobody waits past stand in one operation that only some have completed."""
    heads = {rank: case.heads(rank) for rank in case.culprits}
    first = next(iter(heads.values()), None)
    if first is None or len(heads) < 2:
        return None
    group, operation = first
    same = all(
        head is not None and head[0] is group and head[1].sequence == operation.sequence
        for head in heads.values()
    )
    everybody = len(heads) < len(group.told)
    done = [one.completed or 0 for rank, one in group.told.items() if rank not in heads]
    if not same or not everybody or max(done, default=0) != operation.sequence:
        return None
    case.culprits.clear()
    if _data_moves(case):
        return HangClass.NO_WAIT
    case.suspects = frozenset(heads)
    case.confidence = Confidence.UNSURE
    return _or_known_fault(case, HangClass.FABRIC)


def _waits_unseen(case: Case, rank: int) -> bool:
    """Return whether a rank is in communication of which its recorder tells nothing."""
    report = case.reports[rank]
    kind = case.culprits[rank][0]
    return kind is HangClass.CPU_SIDE and in_communication(report) is True and not case.heads(rank)


def _may_wait_unseen(case: Case, rank: int) -> bool:
    """Return whether a rank does sends or receives with gloo, and no stack says where it stands."""
    told = [group.told[rank] for group in case.frontiers.of_rank.get(rank, ())]
    by_gloo = any(one.p2p_enqueued is not None and one.p2p_completed is None for one in told)
    return by_gloo and in_communication(case.reports[rank]) is None


def _unseen_wait(case: Case, waiting: set[int]) -> HangClass:
    """The waiting leads to ranks that wait in sends or receives of which no recorder tells."""
    case.culprits.clear()
    if _data_moves(case):
        return HangClass.NO_WAIT
    case.confidence = Confidence.LIKELY
    for rank, reason in departed_in_p2p(case.frontiers).items():
        case.culprits[rank] = (HangClass.DESYNC, reason)
    elsewhere = _outside_communication(case)
    for rank in () if case.culprits else elsewhere:
        case.culprits[rank] = (HangClass.CPU_SIDE, f"it is not in communication{_at(case, rank)}")
    if case.culprits:
        return _shared_class(case)
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


def _data_moves(case: Case) -> bool:
    """Return whether ranks are sending: what they wait in is large or the network slow, no hang.

    gloo tells of an operation only when it has begun and ended, whatever it takes between.
    """
    sending = {rank: one for rank, one in case.reports.items() if sends_data(one)}
    if sending:
        written = sum(one.process.written_bytes or 0 for one in sending.values())
        case.sentence = words.of_data_that_moves(sending, written)
    return bool(sending)


def _program_or_network(case: Case, in_p2p: Collection[int]) -> HangClass:
    """All wait, some in sends and receives: the program's fault, or a network's between nodes."""
    nodes = {report.node for report in case.reports.values()}
    one_node = len(nodes) == 1 and "" not in nodes
    case.suspects = frozenset(in_p2p)
    case.confidence = Confidence.LIKELY if one_node else Confidence.UNSURE
    case.sentence = words.of_unrecorded_waits(case.reports, in_p2p, one_node=one_node)
    return HangClass.DESYNC


def _from_silence(case: Case) -> HangClass | None:
    """Ranks that told nothing, where the waiting of others has no other explanation."""
    if _behind_at_heads(case):
        return None  # what a GPU shows weighs more than what nobody tells
    silence = explained_by_silence(case)
    told = {rank: case.reports[rank] for rank in silence.forced if rank in case.reports}
    # Something false that was told in a rank's name is no evidence against it, and one that gave up
    # waiting was waiting.
    cleared = {rank for rank, report in told.items() if _is_no_evidence(report)}
    cleared |= silence.forced & case.frontiers.invalid.keys()
    for rank in silence.forced - cleared:
        case.culprits[rank] = _class_of_silent(told.get(rank))
    case.suspects = silence.possible | cleared
    case.confidence = Confidence.LIKELY
    seen = all(kind is not HangClass.SILENT for kind, _ in case.culprits.values())
    by_chance = silence.by_chance > _BY_CHANCE
    if by_chance and case.culprits and not seen:
        case.sentence = words.of_missing_dumps(case.culprits, len(case.silent))
    if (len(case.culprits) > 1 or by_chance) and not seen:
        # Each may wait for another of them, or have no dump as others have none.
        case.suspects |= case.culprits.keys()
        case.culprits.clear()
    if case.culprits:
        return _shared_class(case)
    if not case.suspects:
        return None
    case.confidence = Confidence.UNSURE
    return HangClass.SILENT


def _behind_at_heads(case: Case) -> dict[int, str]:
    """Return the ranks that stand in what most of their peers have completed; with reasons."""
    return {rank: told for rank, told in case.behind.items() if case.heads(rank) is not None}


def _is_no_evidence(report: RankHangReport) -> bool:
    false = any(one.source is EvidenceSource.IDENTITY for one in report.blind)
    return false or gave_up_waiting(report.process)


def _class_of_silent(report: RankHangReport | None) -> Seen:
    if report is None:
        return HangClass.SILENT, "it told nothing, and others wait for it"
    told = words.blind_reason(report)
    return suspicion(report) or (HangClass.SILENT, f"others wait for it, and {told}")


def _from_knots(case: Case) -> HangClass | None:
    """Ranks that wait for one another in a circle."""
    found = [one for one in knots(case.graph) if not _leads_to_silence(case, one)]
    # An operation that all have come to would complete in any order: it ends the waiting, not this.
    if not found or stuck_ranks_of(case.frontiers, case.graph):
        return None
    case.confidence = Confidence.LIKELY
    for ranks in found:
        case.culprits.update(_of_circle(case, ranks))
    if case.culprits:
        return _shared_class(case)
    case.suspects = frozenset(rank for ranks in found for rank in ranks)
    stand_there = all(in_communication(case.reports[rank]) for rank in case.suspects)
    case.confidence = Confidence.LIKELY if stand_there else Confidence.UNSURE
    return HangClass.DESYNC


def _of_circle(case: Case, ranks: Sequence[int]) -> dict[int, Seen]:
    """Return which of the ranks in a circle hold the others back, where something tells it."""
    if outside := _outside_of(case, ranks):
        # What they have enqueued runs beside them, so they seem to wait; they stand elsewhere.
        return {rank: _class_of(case, rank) for rank in outside}
    if departed := _few_departed(case, ranks):
        return departed
    late = _late_in_collectives(case, ranks)
    # Of several one left something out, and the others wait for their receives in good order.
    return {rank: _late_class(case, rank) for rank in late} if len(late) == 1 else {}


def _late_class(case: Case, rank: int) -> Seen:
    """Return in which way a rank that has posted a receive holds back those in a collective."""
    if not in_communication(case.reports[rank]):
        return _class_of(case, rank)
    # It does stand in the receive, so it left the collective out.
    return HangClass.DESYNC, f"{words.of_frontier(case.frontiers, rank)}; it waits in a receive"


def _outside_of(case: Case, ranks: Sequence[int]) -> list[int]:
    """Return the ranks of a circle that are not in communication, if all others are."""
    inside = {rank: in_communication(case.reports[rank]) for rank in ranks}
    outside = [rank for rank, one in inside.items() if one is False]
    return outside if 2 * len(outside) <= len(ranks) and None not in inside.values() else []


def _leads_to_silence(case: Case, ranks: Iterable[int]) -> bool:
    """Return whether a rank of a circle may wait for a rank outside that told nothing."""
    return any(rank in case.graph.heads and _may_wait_for_silent(case, rank) for rank in ranks)


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


def _with_who_departed(case: Case, kind: HangClass) -> HangClass:
    """Name who did what it never did before, where the program is at fault and nobody is named.

    A suspect comes first, and then one rank of all. Where nothing tells for whom ranks wait, that
    one of them has departed says that it is the program.
    """
    unknown = kind is HangClass.UNKNOWN and not case.silent
    if case.culprits or not (unknown or kind is HangClass.DESYNC):
        return kind
    everybody = [rank for rank, one in case.reports.items() if one.departure]
    alone = everybody if len(everybody) == 1 else []
    among = {} if unknown else _few_departed(case, case.suspects)
    if not (named := among or _few_departed(case, alone, of=case.world_size)):
        return kind
    case.culprits, case.suspects = named, frozenset()
    case.confidence, case.sentence = Confidence.LIKELY, ""
    return HangClass.DESYNC


def _few_departed(case: Case, ranks: Collection[int], of: int = 0) -> dict[int, Seen]:
    """Return those of some ranks that departed, if they are at most half of them, or of so many."""
    reports = {rank: case.reports[rank] for rank in ranks if rank in case.reports}
    told = {rank: _departed(one) for rank, one in reports.items() if one.departure}
    if 2 * len(told) > (of or len(ranks)):
        return {}
    return {
        rank: (HangClass.DESYNC, f"{one}{_at(case, rank)}") for rank, one in sorted(told.items())
    }


def _departed(report: RankHangReport) -> str:
    return f"it did {printable(report.departure)}"


def _from_one_operation(case: Case) -> HangClass | None:
    """All have enqueued what they wait in: a GPU that did not start it, or the fabric."""
    heads = {rank: head for rank in case.frontiers.of_rank if (head := case.heads(rank))}
    if not heads:
        return None
    late = not_started(heads)
    if not late and _data_moves(case):
        return HangClass.NO_WAIT
    for rank, reason in (late or _behind_at_heads(case)).items():
        case.culprits[rank] = (HangClass.GPU_SIDE, reason)
    if case.culprits:
        return _shared_class(case)
    stuck = stuck_ranks_of(case.frontiers, case.graph)
    if case.graph.awaited and not stuck:
        case.confidence = Confidence.UNSURE
        return HangClass.UNKNOWN
    case.confidence = Confidence.LIKELY
    # All others of their groups have completed what these stand in.
    alone = left_alone(stuck, case.graph)
    if stuck and alone.keys() == stuck:
        case.culprits.update((rank, (HangClass.GPU_SIDE, told)) for rank, told in alone.items())
        return _shared_class(case)
    case.suspects = stuck or frozenset(heads)
    return _or_known_fault(case, HangClass.FABRIC)


def _from_stacks(case: Case) -> HangClass | None:
    """No recorder tells of a wait: a few ranks are not in communication while the others are."""
    held = {r: seen for r, report in case.reports.items() if (seen := suspicion(report))}
    if held and len(held) <= max(1, _OUTLIERS * case.world_size):
        case.culprits.update(held)
        case.confidence = Confidence.LIKELY
        return _shared_class(case)
    for rank in _outside_communication(case):
        told = f"it is not in communication while the others are{_at(case, rank)}"
        case.culprits[rank] = (HangClass.CPU_SIDE, told)
    if not case.culprits:
        return _from_unrecorded_waits(case)
    case.confidence = Confidence.LIKELY
    return HangClass.CPU_SIDE


def _from_unrecorded_waits(case: Case) -> HangClass | None:
    """All ranks wait in communication, and no recorder tells of it: sends and receives of gloo."""
    whole = len(case.reports) == case.world_size
    inside = whole and all(in_communication(report) for report in case.reports.values())
    in_p2p = {rank for rank, report in case.reports.items() if in_send_or_receive(report)}
    if not inside or not in_p2p:
        return None
    if _data_moves(case):
        return HangClass.NO_WAIT
    return _program_or_network(case, in_p2p)


def _outside_communication(case: Case) -> list[int]:
    inside = {rank: in_communication(report) for rank, report in case.reports.items()}
    known = [rank for rank, one in inside.items() if one is not None]
    outside = [rank for rank in known if not inside[rank]]
    few = len(outside) <= max(1, _OUTLIERS * len(known))
    return sorted(outside) if few and len(outside) < len(known) else []


_FINDINGS: tuple[Callable[[Case], HangClass | None], ...] = (
    _from_endings,
    _from_processes,
    _from_mismatches,
    _from_orders,
    _from_frontiers,
    _from_knots,
    _from_silence,
    _from_one_operation,
    _from_stacks,
)


# --- what is said ------------------------------------------------------------------------------


def _at(case: Case, rank: int) -> str:
    return where(case.reports[rank]) if case.with_frames else ""


def _shared_class(case: Case) -> HangClass:
    """Return the class of the first culprit, or the published fault that explains them all."""
    kinds = {kind for kind, _ in case.culprits.values()}
    return _or_known_fault(case, next(kind for kind in HangClass if kind in kinds))


def _or_known_fault(case: Case, kind: HangClass) -> HangClass:
    if known_fault(kind, case.reports.values()) is None:
        return kind
    case.suspects |= case.culprits.keys()
    return HangClass.KNOWN_SOFTWARE


def _verdict(case: Case, kind: HangClass) -> HangVerdict:
    culprits = [
        Culprit(rank, case.reports[rank].node if rank in case.reports else "", one, reason[:500])
        for rank, (one, reason) in sorted(case.culprits.items())
    ]
    sources = set(case.culprits) or case.suspects
    verdict = HangVerdict(
        kind=kind,
        culprits=tuple(culprits[:CULPRITS_MAX]),
        confidence=_confidence(case, kind),
        sentence="",
        suspects=words.ranks_told(case.suspects),
        chain=words.chain_of(case.frontiers, case.graph, sources),
        groups=words.groups_of(case.frontiers),
        blind=words.blind_of(case),
        ras=words.ras_of(case),
        world_size=case.world_size,
        told=len(case.frontiers.of_rank),
    )
    if kind is not HangClass.KNOWN_SOFTWARE:
        sentence = case.sentence or words.sentence_of(verdict, len(culprits))
        return replace(verdict, sentence=sentence)
    reports = case.reports.values()
    fault = next(one for each in HangClass if (one := known_fault(each, reports)))
    told = sentence_of(fault, reports)
    return replace(verdict, culprits=(), sentence=told[:1].upper() + told[1:])


def _confidence(case: Case, kind: HangClass) -> Confidence:
    direct = {HangClass.DEAD, HangClass.FROZEN}
    if case.confidence is Confidence.CERTAIN and case.silent and kind not in direct:
        return Confidence.LIKELY
    return case.confidence
