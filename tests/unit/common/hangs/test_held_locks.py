"""A rank holds the GIL in a job without a recorder: it is named only where all wait for it."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from everstep_common.codec import json_text
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.looks import Look, judge_told, stuck_ranks
from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import ProcessFacts, ProcessState, RankHangReport
from everstep_common.hangs.reports.verdict import Confidence, HangClass

_WAITS = ProcessFacts(state=ProcessState.SLEEPING, wchan="poll_schedule_timeout", gil_held=False)
# As a look sees a C library's sleep, and a loop in C, by a thread that keeps the GIL.
_SLEEPS = ProcessFacts(
    state=ProcessState.SLEEPING,
    wchan="hrtimer_nanosleep",
    gil_held=True,
    gil_held_ms=3100,
    native_stack_unchanged=True,
    cpu_percent=1,
    page_faults=0,
)
_LOOPS = replace(
    _SLEEPS,
    state=ProcessState.RUNNING,
    wchan="",
    native_stack_unchanged=False,
    cpu_percent=100,
)
_BUILDS = replace(_LOOPS, page_faults=40_000)
_EVALUATES = replace(_WAITS, wchan="hrtimer_nanosleep")


def _reports(*processes: ProcessFacts) -> list[RankHangReport]:
    size = len(processes)
    return [
        RankHangReport(rank=rank, world_size=size, process=process)
        for rank, process in enumerate(processes)
    ]


def _look(reports: Sequence[RankHangReport], size: int = 4) -> Look:
    return judge_told([NodeTold("n0", 0, size, tuple(map(json_text, reports)))])


@pytest.mark.parametrize("process", [_SLEEPS, _LOOPS, _BUILDS], ids=["sleeps", "loops", "builds"])
def test_one_that_all_others_wait_for_is_named(process: ProcessFacts) -> None:
    verdict = judge(_reports(_WAITS, _WAITS, process, _WAITS))
    assert [(one.rank, one.kind) for one in verdict.culprits] == [(2, HangClass.GIL_HELD)]
    assert verdict.confidence is Confidence.LIKELY
    assert "Rank 2 holds the job back: GIL held" in verdict.sentence


@pytest.mark.parametrize(
    "other",
    [
        _EVALUATES,
        replace(_WAITS, state=ProcessState.RUNNING, wchan=""),
        replace(_WAITS, state=ProcessState.UNINTERRUPTIBLE, wchan="folio_wait_bit"),
        ProcessFacts(),
    ],
    ids=["evaluates", "computes", "reads", "was not seen"],
)
def test_it_is_not_named_where_another_one_does_not_wait(other: ProcessFacts) -> None:
    verdict = judge(_reports(_WAITS, other, _SLEEPS, _WAITS))
    assert 2 not in {one.rank for one in verdict.culprits}


def test_nobody_is_named_where_one_was_not_read_or_more_than_a_few_hold_it() -> None:
    whole = _reports(_WAITS, _WAITS, _SLEEPS, _WAITS)
    assert judge(whole[:3], 4).culprits == ()
    assert judge(_reports(_SLEEPS, _LOOPS, _WAITS, _WAITS)).culprits == ()
    assert judge(_reports(_SLEEPS)).culprits == (), "nobody else is there to wait"


def test_nobody_holds_it_who_evaluates_or_loads_in_python() -> None:
    assert judge(_reports(_WAITS, _WAITS, _EVALUATES, _WAITS)).kind is HangClass.NO_WAIT


def test_a_rank_of_torch_is_named_as_before_whatever_others_are_seen_to_do() -> None:
    held = replace(_SLEEPS, answers_ping=True)
    verdict = judge(_reports(_WAITS, ProcessFacts(), held, _WAITS))
    assert [one.rank for one in verdict.culprits] == [2]


def test_only_one_that_stands_still_with_it_is_stuck() -> None:
    for process, stuck in ((_SLEEPS, (2,)), (_LOOPS, ()), (_BUILDS, ())):
        reports = _reports(_WAITS, _WAITS, process, _WAITS)
        assert stuck_ranks(reports, judge(reports)) == stuck


def test_a_main_thread_that_waits_for_threads_of_its_own_that_compute_is_not_stuck() -> None:
    """A compiler, or a solver with many threads, that was called without giving the GIL back."""
    compiles = replace(_SLEEPS, wchan="futex_do_wait", cpu_percent=350)
    reports = _reports(_WAITS, _WAITS, compiles, _WAITS)
    assert stuck_ranks(reports, judge(reports)) == ()
    of_torch = _reports(_WAITS, _WAITS, replace(compiles, answers_ping=True), _WAITS)
    assert stuck_ranks(of_torch, judge(of_torch)) == (2,)


def test_a_look_tells_for_how_long_it_is_held_and_whether_something_is_built_with_it() -> None:
    loops = _look(_reports(_WAITS, _WAITS, _LOOPS, _WAITS))
    assert (loops.held_ms, loops.works) == (3100, False)
    builds = _look(_reports(_WAITS, _WAITS, _BUILDS, _WAITS))
    assert (builds.held_ms, builds.works) == (3100, True)
    assert "takes memory or writes meanwhile" in builds.verdict.sentence
    writes = replace(_LOOPS, written_bytes=1 << 20)
    assert _look(_reports(_WAITS, _WAITS, writes, _WAITS)).works
    nobody = _look(_reports(_WAITS, _WAITS, _EVALUATES, _WAITS))
    assert (nobody.held_ms, nobody.works) == (0, False)


def test_who_holds_it_without_a_stack_is_elsewhere_than_who_evaluates() -> None:
    places = [
        _look(_reports(_WAITS, _WAITS, process, _WAITS)).place
        for process in (_EVALUATES, _LOOPS, _BUILDS)
    ]
    assert places[0] == ""
    assert places[1] == places[2] != ""
