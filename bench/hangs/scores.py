"""Scores of live hangs: who was named, what it was called, and how soon, with intervals. Pure."""

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hangs.cases import NEGATIVES, PROGRAM_KINDS, Outcome
from harness.table import Target

Row = dict[str, object]
# Of the normal distribution: 95 % of it.
_Z = 1.96
_PRECISION, _RECALL, _CLASS = Target(0.98, True), Target(0.95, True), Target(0.95, True)
_SHARE_IN_TIME = Target(0.95, True)
_DETECTED_S, _NAMED_S = 5.0, 8.0


@dataclass(frozen=True, slots=True)
class Score:
    """One figure over all injections; ``low`` and ``high`` hold a share with 95 %."""

    name: str
    value: float
    # What was counted, and of how many; seconds have only how many.
    part: int | None
    of: int
    target: Target | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return the bounds of a share; None where it is none."""
        return interval(self.part, self.of) if self.part is not None and self.of else None

    @property
    def met(self) -> bool | None:
        """Return whether it keeps to its target; None: it has none."""
        return self.target.met(self.value) if self.target else None

    @property
    def head(self) -> Sequence[str]:
        """See Line."""
        return ("what", "value", "of", "95 % interval", "target", "met")

    def as_json(self) -> Row:
        """See Line."""
        low, high = self.interval or (None, None)
        target = str(self.target) if self.target else None
        told: Row = {"name": self.name, "value": self.value, "part": self.part, "of": self.of}
        return told | {"low": low, "high": high, "target": target, "met": self.met}

    def cells(self) -> list[str]:
        """See Line."""
        share = self.part is not None
        low, high = self.interval or (0.0, 0.0)
        return [
            self.name,
            f"{self.value:.3f}" if share else f"{self.value:.1f} s",
            f"{self.part} of {self.of}" if share else str(self.of),
            f"{low:.3f} to {high:.3f}" if share else "",
            str(self.target or ""),
            "" if self.met is None else "yes" if self.met else "no",
        ]


def scores(outcomes: Sequence[Outcome]) -> Iterator[Score]:
    """Yield the figures over all kinds together, those with a target first."""
    hung = [one for one in outcomes if one.verdict is not None]
    if not hung:
        return
    named = sum(len(one.named) for one in hung)
    yield _share("culprit precision", _found(hung), named, _PRECISION)
    yield _share("culprit recall", _found(hung), len(hung), _RECALL)
    blamed = [one for one in hung if one.case.kind not in PROGRAM_KINDS]
    name = "culprit recall, without faults of the program"
    yield _share(name, _found(blamed), len(blamed), _RECALL)
    right = sum(one.class_right for one in hung)
    yield _share("class right", right, len(hung), _CLASS)
    detected, verdicts = [one.detected_s for one in hung], [one.verdict_s for one in hung]
    yield _in_time("detected", detected, _DETECTED_S)
    yield _in_time("culprit named, by two looks", verdicts, _NAMED_S)
    first = [one.first_s for one in hung]
    for what, seconds, most_s in (
        ("detected", detected, _DETECTED_S),
        ("first look judged", first, None),
        ("culprit named, by two looks", verdicts, _NAMED_S),
    ):
        target = None if most_s is None else Target(most_s)
        yield Score(f"fault → {what}, 95th percentile", late_s(seconds), None, len(hung), target)
        yield Score(f"fault → {what}, median", statistics.median(seconds), None, len(hung))
    yield from _beside(outcomes, hung)


def _beside(outcomes: Sequence[Outcome], hung: Sequence[Outcome]) -> Iterator[Score]:
    program = [one for one in hung if one.case.kind in PROGRAM_KINDS]
    yield _share("faults of the program of which the rank is named", _found(program), len(program))
    negatives = [one for one in hung if one.case.kind in NEGATIVES]
    places = sum(one.right for one in negatives)
    yield _share("what comes out by itself, told with its place", places, len(negatives))
    nothing = len(outcomes) - len(hung)
    yield _share("injections that hung nothing", nothing, len(outcomes))
    stuck = sum(not one.went_on for one in outcomes)
    yield _share("injections that did not come out again", stuck, len(outcomes))


def _found(outcomes: Sequence[Outcome]) -> int:
    return sum(one.case.victim in one.named for one in outcomes)


def _share(name: str, part: int, whole: int, target: Target | None = None) -> Score:
    return Score(name, part / whole if whole else 0.0, part, whole, target if whole else None)


def _in_time(name: str, seconds: Sequence[float], most_s: float) -> Score:
    part = sum(one <= most_s for one in seconds)
    return _share(f"{name} within {most_s:g} s", part, len(seconds), _SHARE_IN_TIME)


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
    found = _found(outcomes)
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


def interval(part: int, whole: int) -> tuple[float, float]:
    """Return the bounds of a share that was counted: Wilson's interval of 95 %."""
    share, square = part / whole, _Z * _Z
    middle = share + square / (2 * whole)
    width = _Z * math.sqrt(share * (1 - share) / whole + square / (4 * whole * whole))
    return (middle - width) / (1 + square / whole), (middle + width) / (1 + square / whole)


def late_s(seconds: Sequence[float]) -> float:
    """Return the 95th percentile: of what was seen, the least that 95 % do not exceed."""
    ordered = sorted(seconds)
    return ordered[math.ceil(0.95 * len(ordered)) - 1]


def wrong(outcome: Outcome) -> str:
    """Return what was wrong about an outcome, with how to repeat it; "" where nothing was."""
    case, verdict = outcome.case, outcome.verdict
    if verdict is None or outcome.right:
        return ""
    return (
        f"wrong: rank {case.victim} of {case.ranks}, {case.layout}; told {verdict.kind.value},"
        f" ranks {sorted(outcome.named)}: {verdict.sentence:.300}\n"
        f"  again: python bench hangs --only live --kind {case.kind} --seed {case.seed} --jobs 1"
    )
