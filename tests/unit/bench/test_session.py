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
    failed = "fails: FAILED, not measured: no such program"
    assert told == {"before it fails": 2.0, failed: 0.0, "once": 1.0}


def test_a_part_with_a_fault_of_its_own_fails_alone_and_shows_where(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def asserts(options: Namespace) -> Iterator[Row]:
        yield from _once(options)
        raise AssertionError("steps: not within 120 s\nlogs of the agent")

    broken = Benchmark(
        about="", parts=[Part("breaks", 1.0, asserts), Part("once", 1.0, _once)], repeats=2
    )
    assert measure(broken, "some", ["--json"]) == 1
    out, err = capsys.readouterr()
    assert [one["name"] for one in json.loads(out)] == [
        "once",
        "breaks: FAILED, not measured: steps: not within 120 s",
        "once",
    ]
    assert "test_session.py" in err
    assert "logs of the agent" in err


def test_only_the_parts_that_are_asked_for_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(BENCHMARK, "some", ["--only", "once", "--markdown"]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == ["| once |     1 | s    |"]


def test_a_quick_run_has_its_own_options() -> None:
    assert BENCHMARK.options("some", []).repeats == 4
    assert BENCHMARK.options("some", ["--quick"]).repeats == 1


def test_what_is_typed_beside_quick_holds() -> None:
    assert BENCHMARK.options("some", ["--quick", "--repeats", "3"]).repeats == 3
    assert BENCHMARK.options("some", ["--repeats", "3", "--quick"]).repeats == 3


def test_help_names_each_part_with_its_time_and_says_what_quick_is() -> None:
    told = BENCHMARK.parser("some").format_help()
    assert "fails 0:10, once 0:30" in " ".join(told.split())
    assert "about 0:40" in told
    assert "as --repeats 1" in told
    assert "(default: 4)" in told


def test_a_quick_run_of_fewer_rounds_is_as_much_shorter() -> None:
    assert BENCHMARK.share_of_usual(BENCHMARK.options("some", ["--quick"])) == 0.25
    sized = Benchmark(about="", parts=BENCHMARK.parts, quick={"nodes": [100, 200]})
    options = Namespace(quick=True, nodes=[100, 200])
    assert sized.share_of_usual(options) == 0.2
    assert "as --nodes 100 200" in sized.parser("some").format_help()


def test_the_time_that_is_left_goes_by_the_pace_of_the_parts_before() -> None:
    progress = Progress(BENCHMARK.parts, 1.0)
    began_s = progress._began_s
    assert sum(progress.left_s(began_s + 4.0)) == pytest.approx(36.0)
    progress.begin(1)
    progress._part_began_s = began_s + 20.0  # twice as long as usual
    assert sum(progress.left_s(began_s + 25.0)) == pytest.approx(55.0)


def test_a_part_that_takes_longer_than_usual_is_said_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress(BENCHMARK.parts, 1.0)
    progress._part_began_s -= 11.0
    progress._tell()
    assert "fails; 0:00 gone, this takes longer than usual, and about 0:30" in (
        capsys.readouterr().err
    )
