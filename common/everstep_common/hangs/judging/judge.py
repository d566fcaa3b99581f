"""Hang judge: who holds a job back, from the reports of its ranks. Pure.

Two frontiers decide. A rank that others wait for to enqueue an operation, and that waits for
nobody itself, holds them back on its CPU side. A rank that has enqueued what its peers have
completed holds them back on its GPU side. Before both stands what is seen directly (a dead or
stopped process) and ranks that call different operations; after both, ranks that told nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from everstep_common.hangs.judging import explanation as words
from everstep_common.hangs.judging.case import (
    Case,
    Seen,
    case_of,
    class_of,
    data_moves,
    ends,
    or_known_fault,
    shared_class,
)
from everstep_common.hangs.judging.completion import (
    completion_laggards,
    not_started,
)
from everstep_common.hangs.judging.known_software import known_fault, sentence_of
from everstep_common.hangs.judging.process_evidence import (
    gave_up_waiting,
    in_communication,
    process_class,
    storage_words,
    suspicion,
    waits_for_storage,
)
from everstep_common.hangs.judging.program_faults import (
    from_endings,
    from_mismatches,
    from_orders,
    with_who_departed,
)
from everstep_common.hangs.judging.silent_ranks import explained_by_silence
from everstep_common.hangs.judging.stuck_operations import left_alone, stuck_ranks_of
from everstep_common.hangs.judging.unseen_waits import (
    from_stacks,
    may_wait_unseen,
    unseen_wait,
    waits_unseen,
)
from everstep_common.hangs.judging.wait_cycles import from_wait_cycles
from everstep_common.hangs.reports.rank_report import EvidenceSource, RankHangReport
from everstep_common.hangs.reports.verdict import (
    CULPRITS_MAX,
    Confidence,
    Culprit,
    HangClass,
    HangVerdict,
)

# A rank without a dump is named where fewer than this many of its operation's members would have
# none for the same reason as ranks that nobody waits for.
_BY_CHANCE = 0.1


def judge(
    reports: Iterable[RankHangReport], world_size: int = 0, *, with_frames: bool = True
) -> HangVerdict:
    """Return who holds a job back.

    ``world_size`` is the number of its ranks, where somebody else than the ranks knows it. One
    report for each rank; a rank that is not there told nothing. Without ``with_frames`` the verdict
    is for everybody: it does not tell in which functions ranks are.
    """
    case = case_of(reports, world_size)
    case.with_frames = with_frames
    for find in _FINDINGS:
        if (kind := find(case)) is not None:
            return _verdict(case, with_who_departed(case, _or_storage(case, kind)))
    return _verdict(case, HangClass.NO_WAIT)


# Of whom nothing worse is known, and who may just wait for storage.
_MAY_WAIT_FOR_STORAGE = frozenset({HangClass.CPU_SIDE, HangClass.SILENT, HangClass.GIL_HELD})


def _or_storage(case: Case, kind: HangClass) -> HangClass:
    """Return a class, or that storage holds the job back where all of its culprits wait for it."""
    waiting = {
        rank: storage_words(case.reports[rank].process)
        for rank, (one, _) in case.culprits.items()
        if one in _MAY_WAIT_FOR_STORAGE
        and rank in case.reports
        and waits_for_storage(case.reports[rank].process)
    }
    case.culprits |= {rank: (HangClass.STORAGE, told) for rank, told in waiting.items()}
    return shared_class(case) if waiting else kind


def _from_storage(case: Case) -> HangClass | None:
    """Nobody waits for a rank, and ranks wait for what a file system answers."""
    for rank, report in case.reports.items():
        if waits_for_storage(report.process):
            case.culprits[rank] = (HangClass.STORAGE, storage_words(report.process))
    case.confidence = Confidence.LIKELY
    return HangClass.STORAGE if case.culprits else None


def _from_processes(case: Case) -> HangClass | None:
    """Ranks whose process is dead or stopped hold everybody back who waits for them."""
    for rank, report in case.reports.items():
        if (seen := process_class(report)) is not None:
            case.culprits[rank] = seen
    if not case.culprits:
        return None
    # A rank that waits for one of them where no recorder tells of it looks like a culprit. One
    # whose stack shows it somewhere else is one.
    # Where one has died, though, those that lost it may be anywhere in what they do about it.
    died = any(kind is HangClass.DEAD for kind, _ in case.culprits.values())
    for rank in ends(case):
        report = case.reports[rank]
        if suspicion(report) or (in_communication(report) is False and not died):
            case.culprits.setdefault(rank, class_of(case, rank))
    return shared_class(case)


def _from_frontiers(case: Case) -> HangClass | None:
    for rank in ends(case):
        case.culprits[rank] = class_of(case, rank)
    _add_laggards(case)
    if (stuck := _stuck_together(case)) is not None:
        return stuck
    in_p2p = {rank for rank in case.culprits if waits_unseen(case, rank)}
    if in_p2p and in_p2p == case.culprits.keys():
        return unseen_wait(case, in_p2p)
    for rank in in_p2p:
        del case.culprits[rank]
    if any(may_wait_unseen(case, rank) for rank in case.culprits):
        case.confidence = Confidence.LIKELY
    return shared_class(case) if case.culprits else None


def _add_laggards(case: Case) -> None:
    behind = case.behind
    late = {rank: behind[rank] for rank in case.culprits if rank in behind}
    for rank, reason in (late | completion_laggards(case.frontiers)).items():
        if gave_up_waiting(case.reports[rank].process):
            continue
        known = case.culprits.get(rank)
        if known is None or known[0] in (HangClass.CPU_SIDE, HangClass.DESYNC):
            case.culprits[rank] = (HangClass.GPU_SIDE, reason)


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
    if data_moves(case):
        return HangClass.NO_WAIT
    case.suspects = frozenset(heads)
    case.confidence = Confidence.UNSURE
    return or_known_fault(case, HangClass.FABRIC)


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
        return shared_class(case)
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


def _from_one_operation(case: Case) -> HangClass | None:
    """All have enqueued what they wait in: a GPU that did not start it, or the fabric."""
    heads = {rank: head for rank in case.frontiers.of_rank if (head := case.heads(rank))}
    if not heads:
        return None
    late = not_started(heads)
    if not late and data_moves(case):
        return HangClass.NO_WAIT
    for rank, reason in (late or _behind_at_heads(case)).items():
        case.culprits[rank] = (HangClass.GPU_SIDE, reason)
    if case.culprits:
        return shared_class(case)
    stuck = stuck_ranks_of(case.frontiers, case.graph)
    if case.graph.awaited and not stuck:
        case.confidence = Confidence.UNSURE
        return HangClass.UNKNOWN
    case.confidence = Confidence.LIKELY
    # All others of their groups have completed what these stand in.
    alone = left_alone(stuck, case.graph)
    if stuck and alone.keys() == stuck:
        case.culprits.update((rank, (HangClass.GPU_SIDE, told)) for rank, told in alone.items())
        return shared_class(case)
    case.suspects = stuck or frozenset(heads)
    return or_known_fault(case, HangClass.FABRIC)


_FINDINGS: tuple[Callable[[Case], HangClass | None], ...] = (
    from_endings,
    _from_processes,
    from_mismatches,
    from_orders,
    _from_frontiers,
    from_wait_cycles,
    _from_silence,
    _from_one_operation,
    from_stacks,
    _from_storage,
)


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
