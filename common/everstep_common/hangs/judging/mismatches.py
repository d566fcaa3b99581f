"""Mismatches: ranks that call other operations than their group, or another number. Pure."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from everstep_common.hangs.judging.frontiers import Frontiers, GroupFrontier, is_p2p
from everstep_common.hangs.reports.rank_report import RankHangReport

# Collectives in which every rank has as many elements of the same type. In the others (all_to_all,
# gather, all_gather of lists) the sizes of two ranks may differ.
_EQUAL_SIZES = frozenset(
    {"all_reduce", "broadcast", "reduce", "_all_gather_base", "_reduce_scatter_base"}
)
_CUT_FROM = 190
_TENSOR = re.compile(r"([\dx]*) ?(\w*)")


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Ranks of a group that call different operations at the same sequence id."""

    group: GroupFrontier
    sequence: int
    # What each of them calls, most frequent first, with its ranks.
    called: tuple[tuple[str, tuple[int, ...]], ...]
    # Ranks that depart from the others; empty if neither the majority nor a rank's history tells.
    culprits: tuple[int, ...]
    # Their history alone tells it.
    by_history: bool = False


def mismatches_of(frontiers: Frontiers, reports: Mapping[int, RankHangReport]) -> list[Mismatch]:
    """Return where ranks of a group call different operations, of those that somebody waits in."""
    return [one for group in frontiers.groups for one in _of_group(group, reports)]


def _of_group(group: GroupFrontier, reports: Mapping[int, RankHangReport]) -> Iterator[Mismatch]:
    if not group.waiting:
        return
    called: dict[int, dict[str, list[tuple[int, str]]]] = {}
    waited = set()
    for rank, one in group.told.items():
        if one.done and one.completed:
            same = called.setdefault(one.completed, {})
            same.setdefault(_signature(one.done), []).append((rank, one.done))
        for operation in one.pending:
            if not is_p2p(operation):
                waited.add(operation.sequence)
                told = f"{operation.name} {operation.shapes}"
                same = called.setdefault(operation.sequence, {})
                same.setdefault(_signature(told), []).append((rank, told))
    for sequence in sorted(waited):
        if len(called[sequence]) > 1:
            yield _mismatch(group, sequence, called[sequence], reports)


def _mismatch(
    group: GroupFrontier,
    sequence: int,
    found: Mapping[str, Sequence[tuple[int, str]]],
    reports: Mapping[int, RankHangReport],
) -> Mismatch:
    ordered = sorted(found.values(), key=len, reverse=True)
    called = tuple((ranks[0][1], tuple(sorted(rank for rank, _ in ranks))) for ranks in ordered)
    everybody = [rank for _, ranks in called for rank in ranks]
    departed = tuple(sorted(rank for rank in everybody if reports[rank].departure))
    culprits: tuple[int, ...] = ()
    majority = 2 * len(called[0][1]) > len(everybody)
    if majority:
        culprits = tuple(sorted(set(everybody) - set(called[0][1])))
    elif len(departed) == 1 or 2 * len(departed) < len(everybody):
        culprits = departed
    return Mismatch(group, sequence, called, culprits, by_history=not majority)


@lru_cache(maxsize=4096)
def _signature(told: str) -> str:
    """Return what must be equal in all ranks that call one collective together."""
    name, _, shapes = told.partition(" ")
    # What was cut may differ in what is missing.
    if name not in _EQUAL_SIZES or len(told) >= _CUT_FROM:
        return name
    inputs, _, outputs = shapes.partition(" -> ")
    found = [_elements(one) for side in (inputs, outputs) for one in side.split(", ") if one]
    return f"{name} {found}"


def _elements(tensor: str) -> tuple[int, str]:
    matched = _TENSOR.fullmatch(tensor)
    if matched is None:
        return (0, tensor)
    count = 1
    for size in matched[1].split("x"):
        count *= int(size) if size else 1
    return (count, matched[2])


def majority_counts(counts: Mapping[int, int]) -> tuple[int, dict[int, int]] | None:
    """Return the number that most ranks have, and those with another; None without a majority."""
    if not counts:
        return None
    value, times = Counter(counts.values()).most_common(1)[0]
    if 2 * times <= len(counts):
        return None
    return value, {rank: one for rank, one in counts.items() if one != value}


def departed_in_p2p(frontiers: Frontiers) -> dict[int, str]:
    """Return ranks that did another number of sends and receives than most; with reasons.

    gloo records none of them, but counts them with the next collective: ranks that wait in the same
    one can be compared. Where ranks have different parts, as in a pipeline, there is no majority.
    """
    found = {}
    for group in frontiers.groups:
        counts = {
            rank: told.p2p_enqueued
            for rank in group.waiting
            if (told := group.told[rank]).p2p_enqueued is not None
            and told.p2p_completed is None
            and told.enqueued == group.farthest()
        }
        usual = majority_counts(counts) or _of_two(counts)
        for rank, count in usual[1].items() if usual else ():
            found[rank] = (
                f"it did {count} sends and receives before the collective in which"
                f" {usual[0] if usual else 0} were done by its peers"
            )
    return found


def _of_two(counts: dict[int, int]) -> tuple[int, dict[int, int]] | None:
    """Of two ranks that were equal before, the one with fewer left something out."""
    if len(counts) != 2 or len(set(counts.values())) != 2:
        return None
    most = max(counts.values())
    return most, {rank: one for rank, one in counts.items() if one == most - 1}
