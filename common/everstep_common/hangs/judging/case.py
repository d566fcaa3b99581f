"""Case of a hang: what is known of it, and what the findings about it share. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from everstep_common.hangs.judging import explanation as words
from everstep_common.hangs.judging.completion import (
    behind_their_peers,
)
from everstep_common.hangs.judging.frontiers import Frontiers, GroupFrontier, frontiers_of
from everstep_common.hangs.judging.known_software import known_fault
from everstep_common.hangs.judging.mismatches import Mismatch
from everstep_common.hangs.judging.process_evidence import (
    gave_up_waiting,
    in_communication,
    process_class,
    sends_data,
    suspicion,
    where,
)
from everstep_common.hangs.judging.wait_graph import WaitGraph, wait_graph_of
from everstep_common.hangs.reports.rank_report import Operation, RankHangReport
from everstep_common.hangs.reports.verdict import (
    CULPRITS_MAX,
    Confidence,
    HangClass,
)
from everstep_common.printable import printable

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


def case_of(reports: Iterable[RankHangReport], world_size: int) -> Case:
    """Return what is known, before anything is found; ``world_size`` 0: the reports tell it."""
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


def ends(case: Case) -> list[int]:
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


def may_wait_for_silent(case: Case, rank: int) -> bool:
    """Return whether the operation that a rank waits in first may lack a rank that told nothing."""
    group, operation = case.graph.heads[rank]
    if operation.peer is not None:
        return operation.peer in case.silent
    if not group.named:
        return bool(case.silent)
    return any(one in case.silent for one in group.unknown)


def class_of(case: Case, rank: int) -> Seen:
    """Return in which way a rank that is waited for holds the others back."""
    report = case.reports[rank]
    if (seen := process_class(report) or suspicion(report)) is not None:
        return seen
    behind = "others wait for it"
    if len(case.culprits) < CULPRITS_MAX:  # no more are told, and each takes a look at its groups
        behind = words.of_frontier(case.frontiers, rank)
    inside = in_communication(report)
    if report.departure and (inside or (inside is None and rank in case.graph.heads)):
        return HangClass.DESYNC, f"{behind}; {departed_words(report)}"
    return HangClass.CPU_SIDE, f"{behind}{at_place(case, rank)}"


def departed_words(report: RankHangReport) -> str:
    """Return what a rank did that it never did before, in words."""
    return f"it did {printable(report.departure)}"


def data_moves(case: Case) -> bool:
    """Return whether ranks are sending: what they wait in is large or the network slow, no hang.

    gloo tells of an operation only when it has begun and ended, whatever it takes between.
    """
    sending = {rank: one for rank, one in case.reports.items() if sends_data(one)}
    if sending:
        written = sum(one.process.written_bytes or 0 for one in sending.values())
        case.sentence = words.of_data_that_moves(sending, written)
    return bool(sending)


def at_place(case: Case, rank: int) -> str:
    """Return where a rank is, as the end of a sentence, if that may be told."""
    return where(case.reports[rank]) if case.with_frames else ""


def shared_class(case: Case) -> HangClass:
    """Return the class of the first culprit, or the published fault that explains them all."""
    kinds = {kind for kind, _ in case.culprits.values()}
    return or_known_fault(case, next(kind for kind in HangClass if kind in kinds))


def or_known_fault(case: Case, kind: HangClass) -> HangClass:
    """Return a class, or that a published fault of a library explains it: nobody is named then."""
    if known_fault(kind, case.reports.values()) is None:
        return kind
    case.suspects |= case.culprits.keys()
    return HangClass.KNOWN_SOFTWARE
