"""Verdict of a pair test: whether fixed work takes longer on a node than on its partners."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median_low

from everstep_common.reports import PairTested
from everstep_controller.core.model.pair_test import PairOutcome, PairResult, PairRow

# So many times as long as the partner's: published for out-of-job pair tests (3 of 3 above 1.08).
SLOW_FACTOR = 1.08
# Processors and memory of the host are shared with whatever else the node does between two
# generations, such as bringing the last step to storage: only a large difference tells something.
HOST_FACTOR = 1.25
_HOST = "host "
# Fewer rounds than these show nothing.
ROUNDS = 3
# So many pieces of work are named in a sentence.
_NAMED_MAX = 3
_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class PairPartner:
    """A partner's answer, and what its work took when it was not slow the last time."""

    name: str
    answer: PairTested | None
    baseline: Mapping[str, int] = field(default_factory=dict)


def factor_of(work: str) -> float:
    """Return from which factor on a piece of work is slower than the partner's."""
    return HOST_FACTOR if work.startswith(_HOST) else SLOW_FACTOR


def judge_pair(
    test: str, node: str, answer: PairTested | None, partners: Sequence[PairPartner]
) -> PairResult:
    """Return what the answers show of a node.

    It is slow where its fastest round is slower than the slowest of a partner, by the factor, and
    that partner agrees with another one or with its own baseline. It is equal where nothing is, and
    everything was measured.
    """
    if answer is None or answer.refusal:
        why = "its agent has not answered in time" if answer is None else answer.refusal
        return PairResult(test, PairOutcome.UNDECIDED, f"{node} was not tested: {why}")
    answered = [one for one in partners if one.answer is not None and not one.answer.refusal]
    if not answered:
        why = "; ".join(map(_silence, partners)) or "nobody could be tested beside it"
        return PairResult(test, PairOutcome.UNDECIDED, f"{node} has no partner: {why}")
    mine = {one.name: one.rounds_ns for one in answer.figures if len(one.rounds_ns) >= ROUNDS}
    rows = tuple(_rows(mine, answered))
    injected = any(one.answer is not None and one.answer.injected for one in partners)
    injected = injected or answer.injected
    if not rows:
        sentence = f"{node} and {_names(answered)} have no work in common that was measured"
        return PairResult(test, PairOutcome.UNDECIDED, sentence + _left_out(answer))
    outcome, sentence, slow = _judge(node, mine, rows, answered)
    rows = tuple(replace(row, slow=row in slow) for row in rows)
    if outcome is PairOutcome.EQUAL and answer.untested:
        # What is slow may be just what was not measured, such as a GPU that somebody uses.
        outcome = PairOutcome.UNDECIDED
    silent = [one for one in partners if one not in answered]
    absent = "".join(f"; without {_silence(one)}" for one in silent)
    return PairResult(test, outcome, sentence + absent + _left_out(answer), rows, injected)


def is_of_devices(result: PairResult) -> bool:
    """Return whether a GPU is slow. A host is made so by any process there, also one of a job."""
    return any(row.slow and not row.work.startswith(_HOST) for row in result.rows)


def medians(answer: PairTested) -> dict[str, int]:
    """Return how long each piece of work took in the middle one of its rounds, in ns."""
    return {one.name: median_low(one.rounds_ns) for one in answer.figures if one.rounds_ns}


# -------------------------------------------------------------------------------------------------


def _judge(
    node: str,
    mine: Mapping[str, tuple[int, ...]],
    rows: Sequence[PairRow],
    partners: Sequence[PairPartner],
) -> tuple[PairOutcome, str, Sequence[PairRow]]:
    """Return what that shows, in a sentence, and the work that is slow."""
    slow: list[PairRow] = []
    doubted: list[PairRow] = []
    for row in rows:
        if not _is_slower(row.work, mine[row.work], partners):
            continue
        (slow if _agrees(row.work, partners) else doubted).append(row)
    if slow:
        sentence = f"{node} is slower than {_names(partners)}: {_shown(slow)}"
        return PairOutcome.SLOW, sentence, slow
    if doubted:
        sentence = (
            f"{node} is slower than {_names(partners)} ({_shown(doubted)}), but nothing shows that "
            "these are as fast as they should be: no second partner, and no earlier test, agrees"
        )
        return PairOutcome.UNDECIDED, sentence, ()
    largest = sorted(rows, key=lambda row: -row.factor)
    sentence = f"the pair test of {node} beside {_names(partners)} shows no difference"
    return PairOutcome.EQUAL, f"{sentence} that lasts: {_shown(largest)}", ()


def _is_slower(work: str, mine: Sequence[int], partners: Sequence[PairPartner]) -> bool:
    """Return whether the fastest round is slower than the slowest of every partner that did it."""
    theirs = [rounds for one in partners if (rounds := _rounds(one, work))]
    most_ns = max(max(rounds) for rounds in theirs)
    return min(mine) > factor_of(work) * most_ns


def _agrees(work: str, partners: Sequence[PairPartner]) -> bool:
    """Return whether partners took as long as each other, or as one of them took before."""
    usual = [median_low(rounds) for one in partners if (rounds := _rounds(one, work))]
    if len(usual) > 1:
        return max(usual) <= factor_of(work) * min(usual)
    known = [one for one in partners if _rounds(one, work) and work in one.baseline]
    return any(usual[0] <= factor_of(work) * one.baseline[work] for one in known)


def _rows(
    mine: Mapping[str, tuple[int, ...]], partners: Sequence[PairPartner]
) -> Iterator[PairRow]:
    """Yield each piece of work that the node and a partner did, beside the first such partner."""
    for work, rounds in mine.items():
        for partner in partners:
            theirs = _rounds(partner, work)
            if theirs and min(*rounds, *theirs) > 0:
                yield PairRow(work, median_low(rounds), median_low(theirs), partner.name)
                break


def _rounds(partner: PairPartner, work: str) -> tuple[int, ...]:
    figures = partner.answer.figures if partner.answer is not None else ()
    found = next((one.rounds_ns for one in figures if one.name == work), ())
    return found if len(found) >= ROUNDS else ()


def _shown(rows: Sequence[PairRow]) -> str:
    told = [
        f"{row.work} {row.factor:.2f} times ({row.node_ns / _MS:.3g} ms, "
        f"{row.partner_ns / _MS:.3g} ms on {row.partner})"
        for row in rows[:_NAMED_MAX]
    ]
    more = f" and {len(rows) - _NAMED_MAX} more" if len(rows) > _NAMED_MAX else ""
    return ", ".join(told) + more


def _left_out(answer: PairTested) -> str:
    """Return what was not measured on the node, as the end of a sentence."""
    first = next(iter(answer.untested), "")
    more = f" and {len(answer.untested) - 1} more" if len(answer.untested) > 1 else ""
    return f"; not measured: {first}{more}" if first else ""


def _silence(partner: PairPartner) -> str:
    answer = partner.answer
    why = "its agent has not answered in time" if answer is None else answer.refusal
    return f"{partner.name}: {why}"


def _names(partners: Sequence[PairPartner]) -> str:
    return " and ".join(one.name for one in partners)
