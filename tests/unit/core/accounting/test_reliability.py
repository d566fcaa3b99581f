"""Reliability numbers, against what was published and what other software computes."""

import math
from random import Random

import pytest

from everstep_controller.core.accounting.reliability import (
    expected_ettr,
    failure_budget,
    failure_rate,
    mttf_s,
    percentile,
    poisson_interval,
    stage_times,
)

HOUR = 3600.0


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Tables of Garwood's interval at 95 %.
    [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (5, 1.6235, 11.6683), (10, 4.7954, 18.3904),
     (50, 37.1109, 65.9195), (100, 81.3640, 121.6274)],
)  # fmt: skip
def test_interval_is_that_of_the_tables(count: int, low: float, high: float) -> None:
    assert poisson_interval(count) == pytest.approx((low, high), abs=1e-3)


def test_interval_holds_the_mean_as_often_as_it_says() -> None:
    random = Random(4)
    held = 0
    for _ in range(400):
        mean = random.uniform(0.5, 30)
        count = _drawn(random, mean)
        low, high = poisson_interval(count)
        held += low <= mean <= high
    # An exact interval holds it at least as often; by chance of 400 rarely fewer than 93 %.
    assert held >= 372


def test_interval_of_many_events_is_close_to_the_normal_one() -> None:
    low, high = poisson_interval(10_000)
    assert (low, high) == pytest.approx((10_000 - 196, 10_000 + 196), abs=4)


def test_llama_3s_rate_and_its_mean_time_to_failure() -> None:
    rate = failure_rate(419, 110_592)
    assert rate.per_1000_node_days == pytest.approx(3.79, abs=0.005)
    assert rate.low < 3.79 < rate.high
    assert mttf_s(2048, rate.per_1000_node_days) / HOUR == pytest.approx(3.09, abs=0.01)


@pytest.mark.parametrize(("gpus", "hours"), [(16_384, 1.80), (131_072, 0.225)])
def test_mean_time_to_failure_of_meta(gpus: int, hours: float) -> None:
    assert mttf_s(gpus // 8, 6.5) / HOUR == pytest.approx(hours, rel=0.02)


def test_no_failure_is_no_end_of_time() -> None:
    assert mttf_s(100, 0) == math.inf
    assert failure_rate(0, 0).high == 0
    assert expected_ettr(math.inf, 60, 90, 10) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("stall_s", "exact"),
    # 12,000 GPUs at 6.5 per 1,000 node-days, 5 minutes to restart, the interval of Young.
    [(10, 0.9215), (60, 0.8585), (300, 0.7358)],
)
def test_expected_ettr_of_the_papers_cases(stall_s: float, exact: float) -> None:
    mttf = mttf_s(12_000 // 8, 6.5)
    interval = math.sqrt(2 * stall_s * mttf)
    assert expected_ettr(mttf, 300, interval, stall_s) == pytest.approx(exact, abs=0.01)


def test_expected_ettr_is_what_a_simulation_of_the_same_law_shows() -> None:
    random, mttf, restart, interval, stall = Random(7), 5_000.0, 120.0, 400.0, 8.0
    work, wall = 0.0, 0.0
    for _ in range(20_000):
        while (lived := random.expovariate(1 / mttf)) < interval + stall:
            wall += lived
            while (again := random.expovariate(1 / mttf)) < restart:
                wall += again
            wall += restart
        work, wall = work + interval, wall + interval + stall
    assert expected_ettr(mttf, restart, interval, stall) == pytest.approx(work / wall, abs=0.003)


def test_what_never_gets_through_has_no_ettr() -> None:
    assert expected_ettr(1.0, 10_000, 1.0, 0.0) == 0.0


def test_stages_have_their_percentiles_and_the_whole_its_own() -> None:
    recoveries = [{"detect": 1.0, "restore": float(n)} for n in range(1, 101)]
    times = stage_times([*recoveries, {"detect": 1.0}])
    assert times["detect"].count == 101
    assert (times["detect"].p50_s, times["detect"].p99_s) == (1.0, 1.0)
    assert times["restore"].p50_s == 50.5
    assert times["restore"].p99_s == pytest.approx(99.01)
    assert times["all"].p50_s == 51.0
    assert stage_times([]) == {}


def test_percentile_of_one_value_is_it() -> None:
    assert percentile([3.0], 0.99) == 3.0
    with pytest.raises(ValueError, match="at least one"):
        percentile([], 0.5)


def test_budget_is_what_overhead_leaves_of_the_target() -> None:
    # 10 days at 99.5 %: 4,320 s, of which snapshots and slowness have taken 1,000.
    budget = failure_budget(0.995, 864_000, 1_000, 1_660, failures=10)
    assert budget.allowed_s == pytest.approx(3_320)
    assert budget.per_failure_s == pytest.approx(332)
    assert budget.burnt == pytest.approx(0.5)


def test_overhead_alone_can_use_the_budget_up() -> None:
    budget = failure_budget(0.995, 1_000, 100, 3, failures=0)
    assert (budget.allowed_s, budget.per_failure_s, budget.burnt) == (0, 0, 0)


@pytest.mark.parametrize("target", [0, 1, -3, 99.5])
def test_target_is_a_share(target: float) -> None:
    with pytest.raises(ValueError, match="target"):
        failure_budget(target, 1, 0, 0, 0)


@pytest.mark.parametrize(("failures", "node_days"), [(-1, 1.0), (1, -1.0)])
def test_rate_of_less_than_nothing_is_refused(failures: int, node_days: float) -> None:
    with pytest.raises(ValueError, match="negative"):
        failure_rate(failures, node_days)


def _drawn(random: Random, mean: float) -> int:
    """Return a number of events by Poisson's law, by the times between them."""
    count, left = 0, mean
    while (left := left - random.expovariate(1.0)) > 0:
        count += 1
    return count
