"""Rows of bench slow: intervals of rare events, rules on known series, the fleet's count."""

import numpy as np
import pytest
from slow.benchmark import binomial_interval, poisson_interval
from slow.collectives import trace_rows
from slow.fleet import NOISE, FleetNoise
from slow.rules import RULES
from slow.series import NAMES, made


@pytest.mark.parametrize(
    ("count", "low", "high"),
    # Exact intervals of a Poisson rate: none seen (rule of three), and two from Garwood's table.
    [(0, 0.0, 2.996), (1, 0.0253, 5.572), (3, 0.6187, 8.767), (10, 4.795, 18.39)],
)
def test_an_interval_of_a_rare_rate_is_exact(count: int, low: float, high: float) -> None:
    assert poisson_interval(count) == pytest.approx((low, high), rel=1e-3)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    # Exact intervals of Clopper and Pearson, as tables have them.
    [
        (0, 20, 0.0, 0.1684),
        (20, 20, 0.8316, 1.0),
        (19, 20, 0.7513, 0.9987),
        (5, 10, 0.1871, 0.8129),
    ],
)
def test_an_interval_of_a_share_is_exact(count: int, of: int, low: float, high: float) -> None:
    assert binomial_interval(count, of) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_names_who_is_ten_times_as_slow(rule: str) -> None:
    series = made(3).with_slow(5, 15, 10.0)
    masks = list(RULES[rule](series))
    assert len(masks) == len(series.seconds)
    assert masks[-1][5]


@pytest.mark.parametrize("name", NAMES[:1])
def test_the_noise_of_a_fleet_is_the_same_for_a_seed(name: str) -> None:
    assert name in NOISE.read_text(encoding="utf-8")
    one, other = (list(FleetNoise(4).steps(3)) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    assert one[0].shape == (16_384,)


@pytest.mark.parametrize("name", NAMES)
def test_one_look_at_a_trace_s_collectives_names_its_slow_worker_and_nobody_else(name: str) -> None:
    rows = {what: value for what, value, *_ in trace_rows(name)}
    assert rows[f"{name} replayed: others named"] == rows[f"{name} recorded: others named"] == 0
    if name == "AR":
        assert rows["AR replayed: slow worker named"] == 1
