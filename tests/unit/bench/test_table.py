"""Rows of a benchmark: medians with their spread, and the same rows for people and programs."""

import json

import pytest
from harness.table import row, show


def test_a_row_is_the_median_with_its_spread_and_its_ratio() -> None:
    limit = row("bare", [9.0, 10.0, 12.0], "µs")
    ours = row("ours", [30.0, 20.0, 25.0], "µs", limit)
    assert (limit.value, limit.spread, limit.ratio, limit.against) == (10.0, 3.0, None, "")
    assert (ours.value, ours.spread, ours.ratio, ours.against) == (25.0, 10.0, 2.5, "bare")


def test_a_limit_of_nothing_has_no_ratio() -> None:
    assert row("ours", [1.0], "s", row("bare", [0.0], "s")).ratio is None


def test_json_has_every_field_of_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    show([row("bare", [1.0], "s")], as_json=True)
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "bare",
            "value": 1.0,
            "unit": "s",
            "against": "",
            "ratio": None,
            "spread": 0.0,
            "target": None,
            "met": None,
        }
    ]


def test_the_table_lines_up(capsys: pytest.CaptureFixture[str]) -> None:
    limit = row("bare", [1.25], "µs")
    show([limit, row("the controller", [1234.5], "µs", limit)], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[3] == "| the controller |  1234 | µs   |      0 | 987.60 | bare    |"
