"""Who holds a real job back: gloo jobs with a fault in one rank, judged against what was injected.

The short suite has one injection of each kind; `make test-long` has more than 200 at random.
"""

from collections.abc import Sequence

import pytest
from hangs.cases import KINDS, PROGRAM_KINDS, Case, Outcome, draw_case
from hangs.live import run_cases
from hangs.scores import wrong

# Of each kind one in a job of four ranks. Four end their job, so there are four jobs.
_SHORT = {
    "pipeline": ("sleep", "gil", "recv"),
    "experts": ("stop", "loader", "kill"),
    "tensor_data": ("lock", "save_blocked", "skip"),
    "gradient_buckets": ("evaluation", "save", "shape"),
}
# As often is a look repeated that the machine was too busy for.
_LOOKS_MAX = 10
_OF_EACH_KIND = 15


def _case(kind: str, layout: str) -> Case:
    drawn = (draw_case(kind, seed) for seed in range(1000))
    return next(one for one in drawn if (one.layout, one.ranks) == (layout, 4))


def _outcomes(cases: Sequence[Case], *, quick: bool) -> list[Outcome]:
    return list(run_cases(cases, _LOOKS_MAX, quick=quick))


@pytest.mark.timeout(240)
def test_one_injection_of_each_kind_is_told_as_what_it_is() -> None:
    outcomes = _outcomes(
        [_case(kind, layout) for layout, kinds in _SHORT.items() for kind in kinds], quick=True
    )
    assert len(outcomes) == 12
    assert [one.case for one in outcomes if one.verdict is None] == []
    assert [told for one in outcomes if (told := wrong(one))] == []
    # On a busy machine what a rank leaves when it ends may come after the last look.
    named = [one.case.kind for one in outcomes if one.named == {one.case.victim}]
    assert len(PROGRAM_KINDS.intersection(named)) >= 2
    assert all(one.went_on for one in outcomes)


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
def test_random_injections_are_told_as_what_they_are() -> None:
    seeds = range(20_000, 20_000 + _OF_EACH_KIND)
    cases = [draw_case(kind, seed) for kind in KINDS for seed in seeds]
    hung = [one for one in _outcomes(cases, quick=False) if one.verdict is not None]
    told = "\n".join(filter(None, map(wrong, hung)))
    named = sum(len(one.named) for one in hung)
    false = sum(len(one.named - {one.case.victim}) for one in hung)
    assert len(hung) >= 190
    assert false <= 0.02 * named, told
    assert sum(one.case.victim in one.named for one in hung) >= 0.95 * len(hung), told
    assert sum(one.class_right for one in hung) >= 0.95 * len(hung), told
