"""Explanation of a verdict: sentences, the chain of waiting, the table of groups. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from everstep_common.hangs.judging.frontiers import Frontiers, GroupFrontier, first_collective
from everstep_common.hangs.judging.mismatches import Mismatch
from everstep_common.hangs.judging.order_conflicts import OrderConflict
from everstep_common.hangs.judging.process_evidence import place
from everstep_common.hangs.judging.wait_graph import PeerWait, WaitGraph, distances
from everstep_common.hangs.reports.members import MembersError, are_named, members_of, members_text
from everstep_common.hangs.reports.rank_report import (
    RAS_LINES_MAX,
    EvidenceSource,
    Operation,
    RankHangReport,
)
from everstep_common.hangs.reports.verdict import (
    BLIND_MAX,
    CHAIN_MAX,
    GROUPS_MAX,
    Confidence,
    GroupState,
    HangClass,
    HangVerdict,
    WaitStep,
    named_ranks,
)
from everstep_common.printable import printable

_RANKS_TOLD = 160
# What a reason says of the one rank that it is of.
_OF_ONE = re.compile(r"\bits?\b")

_KINDS: Mapping[HangClass, str] = {
    HangClass.DEAD: "dead",
    HangClass.FROZEN: "frozen",
    HangClass.STORAGE: "storage",
    HangClass.GIL_HELD: "GIL held",
    HangClass.CPU_SIDE: "CPU side",
    HangClass.GPU_SIDE: "GPU side",
    HangClass.SILENT: "told nothing",
    HangClass.FABRIC: "fabric",
    HangClass.DESYNC: "software desync",
    HangClass.KNOWN_SOFTWARE: "known software fault",
    HangClass.UNKNOWN: "not known",
    HangClass.NO_WAIT: "no wait seen",
}


class JudgedCase(Protocol):
    """What a verdict was made of."""

    reports: Mapping[int, RankHangReport]
    world_size: int
    frontiers: Frontiers
    silent: frozenset[int]


def kind_words(kind: HangClass) -> str:
    """Return a class in words."""
    return _KINDS[kind]


def ranks_told(ranks: Iterable[int]) -> str:
    """Return ranks as text that fits into a line: "0-7,12", or how many where it does not fit."""
    found = sorted(set(ranks))
    text = members_text(found) if found else ""
    if len(text) <= _RANKS_TOLD and are_named(text):
        return text
    return f"{members_text(found[:8])} and {len(found) - 8} more"


def together(texts: Iterable[str]) -> str:
    """Return ranks that several texts tell as one text; those that do not name all are left out."""
    found: set[int] = set()
    for text in filter(None, texts):
        with suppress(MembersError):
            found.update(members_of(text))
    return ranks_told(found)


def plural(ranks: Collection[int]) -> str:
    """Return "rank 3" or "ranks 3,5"."""
    return f"rank{'s' if len(ranks) != 1 else ''} {ranks_told(ranks)}"


def _group_name(group: GroupFrontier) -> str:
    members = ranks_told(group.members)
    return f"{printable(group.description)[:120]} ({members})"


def _operation_name(operation: Operation) -> str:
    peer = "" if operation.peer is None else f" with rank {operation.peer}"
    return f"{printable(operation.name)} #{operation.sequence}{peer}"


def of_frontier(frontiers: Frontiers, rank: int) -> str:
    """Return what a rank that others wait for has not enqueued."""
    behind = [
        group
        for group in frontiers.of_rank.get(rank, ())
        if group.waiting and group.enqueued.get(rank, group.farthest()) < group.farthest()
    ]
    if not behind:
        return "it has not posted the other end of a send or receive that others wait in"
    group = max(behind, key=lambda one: len(one.waiting))
    own = group.enqueued[rank]
    waiting = [one for one in group.waiting if group.enqueued[one] > own]
    first = [
        one
        for each in waiting
        if (one := first_collective(group.told[each])) is not None and one.sequence > own
    ]
    named = min(first, key=lambda one: one.sequence, default=None)
    what = f"{printable(named.name)} #{named.sequence}" if named else f"collective #{own + 1}"
    return (
        f"{len(waiting)} of {len(group.members)} members of {_group_name(group)} wait in {what};"
        f" it has enqueued {f'#{own} and nothing since' if own else 'none'}"
    )


def of_mismatch(mismatch: Mismatch, rank: int) -> str:
    """Return what a rank calls where the others of its group call something else."""
    own = next(told for told, ranks in mismatch.called if rank in ranks)
    usual, others = next(one for one in mismatch.called if rank not in one[1])
    return (
        f"at #{mismatch.sequence} of {_group_name(mismatch.group)} it calls"
        f" {printable(own.strip())}, and {plural(others)} {'calls' if len(others) == 1 else 'call'}"
        f" {printable(usual.strip())}"
    )


def of_order(conflict: OrderConflict, rank: int) -> str:
    """Return in which order a rank calls what another one calls in another order."""
    name = f"#{conflict.sequence} of {_group_name(conflict.group)}"
    other = _group_name(conflict.other)
    if rank == conflict.early:
        return (
            f"it has called an operation of {other} that rank {conflict.waiting} calls only after"
            f" {name}, and has not called that one: it left it out, or calls it later"
        )
    return (
        f"it waits in {name} before an operation of {other} that rank {conflict.early} has called"
        " without it: the others do not call it there"
    )


def of_unfit_data(ranks: Collection[int]) -> str:
    """Return what ranks show that ended over data of another size than they had called for."""
    return (
        f"{plural(ranks).capitalize()} ended because the data that came did not fit the operation"
        " that was called there: the ranks do not call the same operations in the same order, or"
        " not with the same sizes. This is the program, no node is at fault"
    )


def of_unrecorded_waits(
    reports: Mapping[int, RankHangReport], ranks: Collection[int], *, one_node: bool
) -> str:
    """Return what ranks show that wait in sends and receives of which no recorder tells."""
    first = min(ranks)
    frames = place(reports[first])
    at = f" (rank {first} in {frames})" if frames else ""
    network = "" if one_node else "; if not, the network between two of these ranks"
    return (
        f"All ranks wait in communication, {plural(ranks)} in sends and receives of which no"
        f" recorder tells{at}: most likely a send or receive has no other end, so the"
        f" program{network}"
    )


def of_data_that_moves(ranks: Collection[int], written_bytes: int) -> str:
    """Return what ranks do that are still sending what others wait for."""
    return (
        f"{plural(ranks).capitalize()} {'sends' if len(ranks) == 1 else 'send'} data,"
        f" {written_bytes / 1e6:.1f} MB since the last look: the operation is large or the network"
        " slow, and the job does not hang"
    )


def of_missing_dumps(ranks: Collection[int], silent: int) -> str:
    """Return what silent ranks show, where ranks that nobody waits for are silent as well."""
    return (
        f"The waiting leads to {plural(ranks)}, which told nothing; {silent} ranks left no dump, so"
        " it may as well be the GPU of another rank that waits there, or a link: their dumps are"
        " needed to tell"
    )


def blind_reason(report: RankHangReport) -> str:
    """Return why a report tells no operation."""
    reasons = [one.reason for one in report.blind if one.source is EvidenceSource.FLIGHT_RECORDER]
    return printable(reasons[0]) if reasons else "it told no operation"


def sentence_of(verdict: HangVerdict, count: int) -> str:
    """Return a verdict as an engineer would tell it, in one or two sentences."""
    if verdict.culprits:
        ranks = [one.rank for one in verdict.culprits]
        more = f" and {count - len(ranks)} more" if count > len(ranks) else ""
        reasons = _reasons(verdict)
        hold = "holds" if count == 1 else "hold"
        return f"{plural(ranks).capitalize()}{more} {hold} the job back: {reasons}"
    suspects = named_ranks(verdict.suspects) if verdict.suspects else "no rank"
    match verdict.kind:
        case HangClass.NO_WAIT:
            return _no_wait(verdict)
        case HangClass.FABRIC:
            return (
                f"All members have enqueued the collective that {suspects} wait in, and it does not"
                " complete: the links between them, or the GPU of one of them"
            )
        case HangClass.SILENT:
            return (
                f"The waiting leads to ranks that told nothing: it is one or more of {suspects},"
                " and without what they tell it cannot be said which"
            )
        case HangClass.DESYNC:
            return (
                f"The program does not call the same operations in the same order on {suspects}:"
                " no node is at fault"
            )
    return f"Ranks wait, and what there is does not tell for whom; it may be {suspects}"


def _reasons(verdict: HangVerdict) -> str:
    told: dict[tuple[HangClass, str], list[int]] = {}
    for one in verdict.culprits:
        told.setdefault((one.kind, one.reason), []).append(one.rank)
    if len(told) == 1:
        kind, reason = next(iter(told))
        reason = _of_each(reason) if len(verdict.culprits) > 1 else reason
        whose = ", which is the program's fault and no node's" if kind is HangClass.DESYNC else ""
        return f"{kind_words(kind)}{whose}. {reason[:1].upper()}{reason[1:]}"
    kinds = sorted({kind_words(kind) for kind, _ in told})
    return " and ".join(kinds)


def _of_each(reason: str) -> str:
    """Return what is told of a rank as what is true of each of several."""
    for of_one, of_each in (("its process ", "the process of each "), ("it ", "each ")):
        if reason.startswith(of_one):
            return of_each + reason.removeprefix(of_one)
    return f"each of them: {reason}" if _OF_ONE.search(reason) else reason


def _no_wait(verdict: HangVerdict) -> str:
    if not verdict.told:
        return "No rank told its operations: there is nothing to judge"
    return (
        f"No rank of the {verdict.told} that told waits in a recorded operation: the job does not"
        " hang, or it hangs where the recorder does not see (sends and receives of gloo,"
        " collectives in CUDA graphs, libraries of their own)"
    )


# --- the chain of waiting ------------------------------------------------------------------------


def chain_of(
    frontiers: Frontiers, graph: WaitGraph, sources: Collection[int]
) -> tuple[WaitStep, ...]:
    """Return how the waiting leads from the ranks farthest away to the culprits."""
    steps = distances(graph, sources)
    links: dict[tuple[int, str, str], tuple[set[int], set[int], str]] = {}
    for distance, description, operation, waiting, awaited, name in _links(frontiers, graph, steps):
        key = (distance, description, operation)
        same = links.setdefault(key, (set(), set(), name))
        same[0].update(waiting)
        same[1].update(awaited)
        if same[2] != name:  # several groups of one description
            links[key] = (same[0], same[1], description)
    ordered = sorted(links.items(), key=lambda one: (-one[0][0], -len(one[1][0]), one[0][1:]))
    told = [
        WaitStep(ranks_told(waiting), operation[:200], name[:200], ranks_told(awaited))
        for (_, _, operation), (waiting, awaited, name) in ordered
    ]
    # The links that are nearest to the culprits say most.
    return tuple(_folded(told)[-CHAIN_MAX:])


def _folded(steps: Iterable[WaitStep]) -> list[WaitStep]:
    """Return a chain in which what ranks wait in at once for the same ranks is one link."""
    found: dict[tuple[str, str], WaitStep] = {}
    for one in steps:
        key = (one.waiting, one.awaited)
        if (known := found.get(key)) is None:
            found[key] = one
            continue
        names = known.operation.split(" and ")
        operation = (
            known.operation if one.operation in names else f"{known.operation} and {one.operation}"
        )
        found[key] = replace(known, operation=operation[:200], group=_both(known.group, one.group))
    return list(found.values())


def _both(known: str, other: str) -> str:
    return known if other in known.split(" and ") else f"{known} and {other}"[:200]


_Link = tuple[int, str, str, list[int], list[int], str]


def _links(frontiers: Frontiers, graph: WaitGraph, steps: Mapping[int, int]) -> Iterator[_Link]:
    for group in frontiers.groups:
        if not group.waiting:
            continue
        behind = [rank for rank in group.behind(group.farthest()) if rank in steps]
        near = min((steps[rank] for rank in behind), default=None)
        if near is None:
            continue
        awaited = [rank for rank in behind if steps[rank] == near]
        least = min(group.enqueued[rank] for rank in awaited)
        ahead = [rank for rank in group.waiting if group.enqueued[rank] > least]
        waiting = [rank for rank in ahead if steps.get(rank) == near + 1]
        if waiting:
            names = {o.name for r in waiting if (o := first_collective(group.told[r]))}
            name = "/".join(sorted(map(printable, names)))
            description = printable(group.description)[:120]
            yield near, description, f"{name} #{least + 1}", waiting, awaited, _group_name(group)
    for waits in graph.peer.values():
        for one in waits:
            yield from _peer_link(one, steps)


def _peer_link(one: PeerWait, steps: Mapping[int, int]) -> Iterator[_Link]:
    near = steps.get(one.awaited)
    if near is None or steps.get(one.waiting) != near + 1:
        return
    name = printable(one.operation.name)
    description = printable(one.group.description)[:120]
    yield near, description, name, [one.waiting], [one.awaited], description


# --- the table of groups -------------------------------------------------------------------------


def groups_of(frontiers: Frontiers) -> tuple[GroupState, ...]:
    """Return the groups in which somebody waits, those with members behind first."""
    waiting = [group for group in frontiers.groups if group.waiting]
    waiting.sort(key=lambda one: (not one.behind(one.farthest()), -len(one.waiting)))
    return tuple(_state(group) for group in waiting[:GROUPS_MAX])


def _state(group: GroupFrontier) -> GroupState:
    newest = group.farthest()
    operation = first_collective(group.told[group.waiting[0]])
    return GroupState(
        group=printable(group.description)[:200],
        members=ranks_told(group.members),
        operation=_operation_name(operation)[:200] if operation else f"#{newest}",
        waiting=ranks_told(group.waiting),
        behind=ranks_told(group.behind(newest)),
        unknown=ranks_told(group.unknown),
    )


# --- what could not be seen ----------------------------------------------------------------------


def blind_of(evidence: JudgedCase) -> tuple[str, ...]:
    """Return what could not be seen, ranks with the same reason together."""
    reasons: dict[str, list[int]] = {}
    missing = [rank for rank in evidence.silent if rank not in evidence.reports]
    if missing:
        reasons["told nothing"] = missing
    for rank, report in evidence.reports.items():
        for one in report.blind:
            told = f"{one.source.value.replace('_', ' ')}: {printable(one.reason)}"
            reasons.setdefault(told, []).append(rank)
    for rank, reason in evidence.frontiers.invalid.items():
        reasons.setdefault(f"invalid: {printable(reason)}", []).append(rank)
    lines = [f"{plural(ranks)}: {reason}"[:500] for reason, ranks in reasons.items()]
    if evidence.frontiers.left_out:
        lines.append(_left_out(evidence.frontiers.left_out, evidence.world_size))
    if len(lines) > BLIND_MAX:
        lines[BLIND_MAX - 1 :] = [f"and {len(lines) - BLIND_MAX + 1} other reasons"]
    return tuple(lines)


def _left_out(count: int, world_size: int) -> str:
    groups = "1 group is" if count == 1 else f"{count} groups are"
    return f"{groups} left out: of ranks beyond the {world_size} of the job, or of too many"


def ras_of(evidence: JudgedCase) -> tuple[str, ...]:
    """Return what NCCL RAS told; one node asks it."""
    lines = dict.fromkeys(line for one in evidence.reports.values() for line in one.ras)
    return tuple(printable(line) for line in lines)[:RAS_LINES_MAX]


def confidence_words(confidence: Confidence) -> str:
    """Return how sure a verdict is, in words."""
    return {
        Confidence.CERTAIN: "certain",
        Confidence.LIKELY: "likely: something that is missing could change it",
        Confidence.UNSURE: "unsure: several explanations are left",
    }[confidence]
