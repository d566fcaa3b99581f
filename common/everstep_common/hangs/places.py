"""Places: where in its script a job stands still, as a number that is the same each time. Pure.

It is the place of those who hold the others back: their phase, and the outermost frames of their
stacks, down to the first in which they are elsewhere than everybody who waits. So an evaluation is
one place wherever it stands within, and the place of whoever waits for it is none.
"""

import hashlib
from collections.abc import Iterable, Sequence

from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_common.hangs.reports.verdict import Confidence, HangVerdict

# Where nobody waits, a frame more would be another one at each moment of one evaluation.
_OUTERMOST = 2
# Of ranks at many places at once, so many count.
_PLACES_MAX = 4
_DIGEST_BYTES = 8

_Stack = tuple[str, ...]


def place_of(reports: Iterable[RankHangReport], verdict: HangVerdict) -> str:
    """Return where a job stands that a look has found to be held back; "" where nobody tells."""
    told = list(reports)
    sure = verdict.confidence is not Confidence.UNSURE
    culprits = {one.rank for one in verdict.culprits} if sure else set()
    holding = [one for one in told if one.rank in culprits] or told
    waiting = [_outermost_first(one) for one in told if culprits and one.rank not in culprits]
    places = sorted({_place(one, waiting) for one in holding} - {("",)})[:_PLACES_MAX]
    if not places:
        return ""
    text = "\n\n".join("\n".join(one) for one in places)
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _place(report: RankHangReport, waiting: Sequence[_Stack]) -> _Stack:
    """Return the phase of a rank and its outermost frames."""
    stack = _outermost_first(report)
    common = [_in_common(stack, other) for other in waiting if other]
    return report.phase, *stack[: max(common) + 1 if common else _OUTERMOST]


def _outermost_first(report: RankHangReport) -> _Stack:
    return report.process.python_stack[::-1]


def _in_common(one: _Stack, other: _Stack) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
