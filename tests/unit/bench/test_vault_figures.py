"""Figures of the vault: ratios of runs that belong together, and whether a target is met."""

import json

import pytest
from harness.figures import Series, Target, show


def test_a_ratio_is_the_median_of_the_ratios_of_each_round() -> None:
    limit = Series("memcpy", [1.0, 2.0, 4.0])
    ours = Series("snapshot", [1.5, 2.0, 8.0]).against(limit)
    assert (ours.value, ours.spread, ours.against) == (2.0, 6.5, "memcpy")
    assert (ours.ratio, ours.ratio_low, ours.ratio_high) == (1.5, 1.0, 2.0)
    assert (ours.target, ours.met) == ("", None)


def test_a_target_is_for_the_ratio_or_else_for_the_value() -> None:
    limit, ours = Series("limit", [1.0]), Series("ours", [1.2])
    assert ours.against(limit, Target(1.2)).met is True
    assert ours.against(limit, Target(1.1)).met is False
    assert ours.figure(Target(1.3, at_least=True)).met is False
    assert ours.figure(Target(1.3, at_least=True)).target == "≥ 1.3"


def test_rounds_that_do_not_match_are_not_compared() -> None:
    with pytest.raises(ValueError, match="longer"):
        Series("ours", [1.0]).against(Series("limit", [1.0, 1.0]))


def test_a_missed_target_is_seen_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    limit = Series("memcpy", [1.0, 1.0])
    figure = Series("snapshot", [1.0, 2.0]).against(limit, Target(1.05))
    show([limit.figure(), figure], as_json=False)
    last = capsys.readouterr().out.splitlines()[-1]
    assert "1.500" in last
    assert "1.00 to 2.00" in last
    assert last.endswith("| ≤ 1.05 | NO  |")
    show([figure], as_json=True)
    assert json.loads(capsys.readouterr().out)[0]["met"] is False
