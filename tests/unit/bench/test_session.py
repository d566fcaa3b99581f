"""Session of a benchmark: its options, the time that is left, and parts that fail."""

import json
from argparse import Namespace
from collections.abc import Iterator

import pytest
from harness.session import Benchmark, Part, Progress, measure
from harness.table import Row, row


def _once(options: Namespace) -> Iterator[Row]:
    yield row("once", [1.0] * options.repeats, "s")


def _fails(_: Namespace) -> Iterator[Row]:
    yield row("before it fails", [2.0], "s")
    raise SystemExit("no such program")


BENCHMARK = Benchmark(
    about="of tests",
    parts=[Part("fails", 10.0, _fails), Part("once", 30.0, _once)],
    repeats=4,
    quick={"repeats": 1},
)


def test_what_other_parts_measured_is_shown_though_one_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert measure(BENCHMARK, "some", ["--json"]) == 1
    told = {one["name"]: one["value"] for one in json.loads(capsys.readouterr().out)}
    assert told == {"before it fails": 2.0, "fails: FAILED, not measured": 0.0, "once": 1.0}


def test_only_the_parts_that_are_asked_for_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(BENCHMARK, "some", ["--only", "once", "--markdown"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["| once |     1 | s    |"]


def test_a_quick_run_has_its_own_options() -> None:
    assert BENCHMARK.options("some", []).repeats == 4
    assert BENCHMARK.options("some", ["--quick"]).repeats == 1


def test_the_time_that_is_left_goes_by_the_pace_of_the_parts_before() -> None:
    progress = Progress(BENCHMARK.parts, 1.0)
    began_s = progress._began_s
    assert progress.left_s(began_s + 4.0) == pytest.approx(36.0)
    progress.begin(1)
    progress._part_began_s = began_s + 20.0  # twice as long as usual
    assert progress.left_s(began_s + 25.0) == pytest.approx(55.0)
    assert progress.left_s(began_s + 500.0) == 0.0
