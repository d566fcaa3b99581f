"""What fixed work on a node and its partners shows, and what it does not."""

import pytest

from everstep_common.reports import PairFigure, PairTested
from everstep_controller.core.model.pair_test import PairOutcome, PairResult
from everstep_controller.core.recovery.pair_verdict import (
    HOST_FACTOR,
    SLOW_FACTOR,
    PairPartner,
    is_of_devices,
    judge_pair,
    medians,
)

WORK = "gpu0 compute"
USUAL = (10_000_000, 10_100_000, 10_200_000)


def answer(*rounds: int, work: str = WORK, refusal: str = "") -> PairTested:
    return PairTested("x/pair/1", (PairFigure(work, rounds),) if rounds else (), refusal=refusal)


def partner(
    *rounds: int, name: str = "y", work: str = WORK, baseline: int = 0, refusal: str = ""
) -> PairPartner:
    known = {work: baseline} if baseline else {}
    return PairPartner(name, answer(*rounds, work=work, refusal=refusal), known)


def judge(mine: PairTested | None, *partners: PairPartner) -> PairResult:
    return judge_pair("x/pair/1", "x", mine, partners)


def test_who_is_slower_in_all_rounds_than_two_that_agree_is_slow() -> None:
    result = judge(answer(12_000_000, 12_100_000, 12_200_000), partner(*USUAL), partner(*USUAL))
    assert result.outcome is PairOutcome.SLOW
    assert "gpu0 compute 1.20 times (12.1 ms, 10.1 ms on y)" in result.sentence
    assert [(row.work, row.partner, row.slow) for row in result.rows] == [(WORK, "y", True)]
    assert is_of_devices(result)


def test_one_partner_is_enough_that_takes_as_long_as_it_did_before() -> None:
    mine = answer(12_000_000, 12_000_000, 12_000_000)
    assert judge(mine, partner(*USUAL, baseline=10_000_000)).outcome is PairOutcome.SLOW


@pytest.mark.parametrize(
    "partners",
    [
        (partner(*USUAL),),
        (partner(*USUAL, baseline=9_000_000),),
        (partner(*USUAL), partner(5_000_000, 5_000_000, 5_000_000, name="z")),
    ],
)
def test_where_the_partners_do_not_agree_nothing_is_said_of_the_node(
    partners: tuple[PairPartner, ...],
) -> None:
    result = judge(answer(12_000_000, 12_000_000, 12_000_000), *partners)
    assert result.outcome is PairOutcome.UNDECIDED
    assert "nothing shows that these are as fast as they should be" in result.sentence


@pytest.mark.parametrize(
    "rounds",
    [
        # One round is as fast as the partner's; all are within the factor; it is faster.
        (10_000_000, 15_000_000, 15_000_000),
        (11_000_000, 11_000_000, 11_000_000),
        (9_000_000, 9_000_000, 9_000_000),
    ],
)
def test_who_is_not_slower_in_every_round_is_equal(rounds: tuple[int, ...]) -> None:
    result = judge(answer(*rounds), partner(*USUAL), partner(*USUAL, name="z"))
    assert result.outcome is PairOutcome.EQUAL
    assert "shows no difference that lasts: gpu0 compute" in result.sentence


def test_the_slowest_round_of_the_slowest_partner_counts() -> None:
    noisy = partner(10_000_000, 10_000_000, 11_800_000, name="z")
    mine = answer(12_000_000, 12_000_000, 12_000_000)
    assert judge(mine, partner(*USUAL), noisy).outcome is PairOutcome.EQUAL


@pytest.mark.parametrize("work", ["host core", "host cores", "host memory"])
def test_on_the_host_only_a_large_difference_counts(work: str) -> None:
    others = (partner(*USUAL, work=work), partner(*USUAL, work=work, name="z"))
    above_gpu = [int(USUAL[2] * SLOW_FACTOR * 1.05)] * 3
    above_host = [int(USUAL[2] * HOST_FACTOR * 1.01)] * 3
    assert judge(answer(*above_gpu, work=work), *others).outcome is PairOutcome.EQUAL
    slow = judge(answer(*above_host, work=work), *others)
    assert slow.outcome is PairOutcome.SLOW
    assert not is_of_devices(slow)


@pytest.mark.parametrize(
    ("mine", "partners", "why"),
    [
        (None, (partner(*USUAL),), "x was not tested: its agent has not answered in time"),
        (answer(refusal="2 ranks run here"), (partner(*USUAL),), "not tested: 2 ranks run here"),
        (answer(*USUAL), (), "nobody could be tested beside it"),
        (answer(*USUAL), (partner(refusal="busy"),), "x has no partner: y: busy"),
        (answer(*USUAL), (PairPartner("y", None),), "y: its agent has not answered in time"),
        (answer(*USUAL), (partner(*USUAL, work="gpu1 compute"),), "no work in common"),
        (answer(*USUAL[:2]), (partner(*USUAL),), "no work in common"),
        (answer(*USUAL), (partner(0, 0, 0),), "no work in common"),
    ],
)
def test_without_two_answers_that_can_be_compared_nothing_is_said(
    mine: PairTested | None, partners: tuple[PairPartner, ...], why: str
) -> None:
    result = judge(mine, *partners)
    assert result.outcome is PairOutcome.UNDECIDED
    assert why in result.sentence


def test_a_partner_that_refuses_is_left_out_and_what_was_not_measured_is_told() -> None:
    mine = PairTested("x/pair/1", (PairFigure(WORK, USUAL),), ("gpu1: in use by process 7",))
    result = judge(mine, partner(refusal="busy"), partner(*USUAL, name="z"))
    assert result.outcome is PairOutcome.UNDECIDED
    assert "shows no difference" in result.sentence
    assert result.sentence.endswith("not measured: gpu1: in use by process 7")
    assert {row.partner for row in result.rows} == {"z"}
    assert "; without y: busy" in result.sentence


def test_a_partner_that_an_operator_named_and_that_died_is_told() -> None:
    result = judge(answer(*USUAL), PairPartner("dead", None), partner(*USUAL, name="z"))
    assert result.outcome is PairOutcome.EQUAL
    assert result.sentence.startswith("the pair test of x beside z shows no difference")
    assert result.sentence.endswith("; without dead: its agent has not answered in time")


def test_what_was_made_on_purpose_is_marked() -> None:
    mine = PairTested("x/pair/1", (PairFigure(WORK, USUAL),), injected=True)
    assert judge(mine, partner(*USUAL)).injected


def test_the_median_of_the_rounds_is_the_baseline() -> None:
    assert medians(answer(3, 1, 2)) == {WORK: 2}
