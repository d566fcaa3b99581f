"""Program faults: ranks that call other operations than others, or than they did before. Pure."""

from collections.abc import Collection

from everstep_common.hangs.judging import explanation as words
from everstep_common.hangs.judging.case import Case, Seen, at_place, departed_words
from everstep_common.hangs.judging.mismatches import mismatches_of
from everstep_common.hangs.judging.order_conflicts import order_conflicts_of, who_departed
from everstep_common.hangs.judging.process_evidence import (
    ended_by_mismatch,
    in_communication,
    timed_out,
)
from everstep_common.hangs.reports.verdict import (
    Confidence,
    HangClass,
)


def from_endings(case: Case) -> HangClass | None:
    """A rank that ended over data that did not fit: the program, whoever ended.

    Where ranks have given up waiting, that is what is left of the operation that they gave up.
    """
    if any(timed_out(one.process) for one in case.reports.values()):
        return None
    ended = {rank for rank, one in case.reports.items() if ended_by_mismatch(one.process)}
    if not ended:
        return None
    from_mismatches(case)
    if not case.culprits:
        case.suspects |= ended
        case.confidence = Confidence.LIKELY
        case.sentence = words.of_unfit_data(ended)
    return HangClass.DESYNC


def from_mismatches(case: Case) -> HangClass | None:
    """Ranks that call different operations at the same place of a group: the program."""
    found = mismatches_of(case.frontiers, case.reports)
    if not found:
        return None
    # The one that most ranks have a part in; a culprit that is known before one that is not.
    best = max(found, key=lambda one: (bool(one.culprits), len(one.group.told), -one.sequence))
    case.mismatch = best
    for one in found:
        for rank in one.culprits:
            called = f"{words.of_mismatch(one, rank)}{at_place(case, rank)}"
            case.culprits[rank] = (HangClass.DESYNC, called)
    if any(one.by_history for one in found):
        case.confidence = Confidence.LIKELY
    if not case.culprits:
        # Somebody departed; nobody knows who.
        case.suspects = frozenset(rank for _, ranks in best.called for rank in ranks)
        case.confidence = Confidence.LIKELY
    return HangClass.DESYNC


def from_orders(case: Case) -> HangClass | None:
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
    case.culprits[departed] = (HangClass.DESYNC, f"{told}{at_place(case, departed)}")
    return HangClass.DESYNC


def with_who_departed(case: Case, kind: HangClass) -> HangClass:
    """Name who did what it never did before, where the program is at fault and nobody is named.

    A suspect comes first, and then one rank of all. Where nothing tells for whom ranks wait, that
    one of them has departed says that it is the program.
    """
    unknown = kind is HangClass.UNKNOWN and _all_may_be_inside(case)
    if case.culprits or not (unknown or kind is HangClass.DESYNC):
        return kind
    everybody = [rank for rank, one in case.reports.items() if one.departure]
    alone = everybody if len(everybody) == 1 else []
    among = {} if unknown else few_departed(case, case.suspects)
    if not (named := among or few_departed(case, alone, of=case.world_size)):
        return kind
    case.culprits, case.suspects = named, frozenset()
    case.confidence, case.sentence = Confidence.LIKELY, ""
    return HangClass.DESYNC


def _all_may_be_inside(case: Case) -> bool:
    """Return whether all ranks have told what they wait in, and none stands elsewhere."""
    reports = case.reports.values()
    return not case.silent and all(in_communication(one) is not False for one in reports)


def few_departed(case: Case, ranks: Collection[int], of: int = 0) -> dict[int, Seen]:
    """Return those of some ranks that departed, if it is one, or they are less than half of all.

    One is named where it is half of them, or of so many.
    """
    reports = {rank: case.reports[rank] for rank in ranks if rank in case.reports}
    told = {rank: departed_words(one) for rank, one in reports.items() if one.departure}
    of = of or len(ranks)
    if 2 * len(told) > of or (len(told) > 1 and 2 * len(told) == of):
        return {}
    return {
        rank: (HangClass.DESYNC, f"{one}{at_place(case, rank)}")
        for rank, one in sorted(told.items())
    }
