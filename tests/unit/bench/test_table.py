"""Rows of a benchmark: medians with their spread and ratios, for people, pages and programs."""

import json

import pytest
from harness.table import Line, Manner, Printer, Series, Target, Told, lines, row


def test_a_row_is_the_median_with_its_spread_and_its_ratio() -> None:
    limit = row("bare", [9.0, 10.0, 12.0], "µs")
    ours = row("ours", [30.0, 20.0, 25.0], "µs", limit)
    assert (limit.value, limit.spread, limit.ratio, limit.against) == (10.0, 3.0, None, "")
    assert (ours.value, ours.spread, ours.ratio, ours.against) == (25.0, 10.0, 2.5, "bare")


def test_a_limit_of_nothing_has_no_ratio() -> None:
    assert row("ours", [1.0], "s", row("bare", [0.0], "s")).ratio is None


def test_a_ratio_of_series_is_the_median_of_the_ratios_of_each_round() -> None:
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
    assert row("ours", [2.0], "s", target=1.5).met is False


def test_rounds_that_do_not_match_are_not_compared() -> None:
    with pytest.raises(ValueError, match="longer"):
        Series("ours", [1.0]).against(Series("limit", [1.0, 1.0]))


def test_a_table_has_no_empty_columns_and_its_numbers_end_right() -> None:
    limit = row("bare", [1.25], "µs")
    ours = row("the controller", [1234.5], "µs", limit)
    assert list(lines(limit.head, [limit.cells(), ours.cells()])) == [
        "| what           | value | unit |  ratio | against |",
        "| -------------- | ----: | ---- | -----: | ------- |",
        "| bare           |  1.25 | µs   |        |         |",
        "| the controller |  1234 | µs   | 987.60 | bare    |",
    ]


def _printed(manner: Manner, *some: Line) -> Printer:
    printer = Printer(manner)
    for one in some:
        printer.add(one)
    return printer


def test_a_line_is_printed_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    _printed(Manner.AT_ONCE, row("bare", [1.25], "µs"))
    head, line = capsys.readouterr().out.splitlines()
    names = [name.strip() for name in head.strip("|").split("|")]
    assert names[:3] + names[-2:] == ["what", "value", "unit", "met", "against"]
    assert line.split()[:7] == ["|", "bare", "|", "1.25", "|", "µs", "|"]


def test_with_json_lines_are_shown_beside_it_and_printed_at_the_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printer = _printed(Manner.JSON, row("bare", [1.0], "s"))
    shown = capsys.readouterr()
    assert (shown.out, "bare" in shown.err) == ("", True)
    printer.close()
    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "bare",
            "value": 1.0,
            "unit": "s",
            "spread": 0.0,
            "against": "",
            "ratio": None,
            "ratio_low": None,
            "ratio_high": None,
            "target": "",
            "met": None,
        }
    ]


def test_a_page_gets_a_table_for_each_kind_of_line(capsys: pytest.CaptureFixture[str]) -> None:
    first = row("bare", [1.0], "s")
    _printed(Manner.MARKDOWN, first, Told({"fault": "gil", "jobs": 3}), first).close()
    assert capsys.readouterr().out.splitlines() == [
        *("| what | value | unit |", "| ---- | ----: | ---- |"),
        *("| bare |     1 | s    |", "| bare |     1 | s    |"),
        *("| fault | jobs |", "| ----- | ---: |", "| gil   |    3 |"),
    ]
