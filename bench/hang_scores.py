"""Scores of live hangs: who was named, what it was called, and how soon, with intervals. Pure."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from hang_live import NEGATIVES, PROGRAM_KINDS, Outcome

Row = dict[str, object]
# Of the normal distribution: 95 % of it.
_Z = 1.96


def scored(outcomes: Sequence[Outcome]) -> Iterator[Row]:
    """Yield a row for each kind and each layout, and one for all."""
    hung = [one for one in outcomes if one.verdict is not None]
    yield from _by(hung, "live", lambda one: one.case.kind)
    yield from _by(hung, "live, ranks in", lambda one: f"{one.case.layout} {one.case.ranks}")
    yield _row("live, all", hung)


def _by(outcomes: Sequence[Outcome], title: str, key: Callable[[Outcome], str]) -> Iterator[Row]:
    for name in sorted({key(one) for one in outcomes}):
        yield _row(f"{title} {name}", [one for one in outcomes if key(one) == name])


def _row(case: str, outcomes: Sequence[Outcome]) -> Row:
    found = sum(one.case.victim in one.named for one in outcomes)
    right = sum(one.class_right for one in outcomes)
    judged_ms = [one.judged_ms for one in outcomes]
    return {
        "case": case,
        "judge": "everstep",
        "culprits": len(outcomes),
        "found": found,
        "false": sum(len(one.named - {one.case.victim}) for one in outcomes),
        "missed": len(outcomes) - found,
        "class": f"{right}/{len(outcomes)}",
        "CPU ms": f"{statistics.median(judged_ms):.1f}" if judged_ms else "-",
    }


def summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield what the rows come to, in sentences; times are by the wall clock."""
    hung = [one for one in outcomes if one.verdict is not None]
    if not hung:
        yield "no job hung"
        return
    named = sum(len(one.named) for one in hung)
    true = sum(one.case.victim in one.named for one in hung)
    yield f"culprit precision {_share(true, named)}"
    blamed = [one for one in hung if one.case.kind not in PROGRAM_KINDS]
    found = sum(one.case.victim in one.named for one in blamed)
    yield f"culprit recall    {_share(found, len(blamed))}, without faults of the program"
    program = [one for one in hung if one.case.kind in PROGRAM_KINDS]
    found = sum(one.case.victim in one.named for one in program)
    yield f"                  {_share(found, len(program))} of the program's faults by rank too"
    yield f"class right       {_share(sum(one.class_right for one in hung), len(hung))}"
    negatives = [one for one in hung if one.case.kind in NEGATIVES]
    places = sum(one.right for one in negatives)
    yield f"what comes out by itself is told with its place {_share(places, len(negatives))}"
    stuck = sum(not one.went_on for one in outcomes)
    yield f"{len(outcomes) - len(hung)} injections hung nothing; {stuck} did not come out again"
    for what, seconds in (
        ("ranks stand still", [one.still_s for one in hung]),
        ("first look judged", [one.first_s for one in hung]),
        ("second look judged", [one.verdict_s for one in hung]),
    ):
        yield f"fault → {what}: {_times(seconds)}"


def _share(part: int, whole: int) -> str:
    if not whole:
        return "- (none)"
    low, high = interval(part, whole)
    return f"{part / whole:.3f} ({part} of {whole}; 95 % within {low:.3f} to {high:.3f})"


def interval(part: int, whole: int) -> tuple[float, float]:
    """Return the bounds of a share that was counted: Wilson's interval of 95 %."""
    share, square = part / whole, _Z * _Z
    middle = share + square / (2 * whole)
    width = _Z * math.sqrt(share * (1 - share) / whole + square / (4 * whole * whole))
    return (middle - width) / (1 + square / whole), (middle + width) / (1 + square / whole)


def _times(seconds: Iterable[float]) -> str:
    ordered = sorted(seconds)
    late = ordered[min(len(ordered) - 1, math.ceil(0.95 * len(ordered)) - 1)]
    middle = statistics.median(ordered)
    return (
        f"median {middle:.1f} s, 95 % within {late:.1f} s, {ordered[0]:.1f} to {ordered[-1]:.1f} s"
    )


def wrong(outcome: Outcome) -> str:
    """Return what was wrong about an outcome, with how to repeat it; "" where nothing was."""
    case, verdict = outcome.case, outcome.verdict
    if verdict is None or outcome.right:
        return ""
    return (
        f"wrong: rank {case.victim} of {case.ranks}, {case.layout}; told {verdict.kind.value},"
        f" ranks {sorted(outcome.named)}: {verdict.sentence:.300}\n"
        f"  again: python bench/localise.py --only {case.kind} --seed {case.seed} --jobs 1"
    )
