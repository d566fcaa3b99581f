"""Looks in a row: which find the same, whether a rank has moved between, and who is stuck."""

from dataclasses import replace

import pytest

from everstep_common.codec import json_text
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.looks import (
    Look,
    Streak,
    follow,
    judge_told,
    moving_job,
    pause_of,
    says_same,
    stuck_ranks,
    where_ranks_stand,
)
from everstep_common.hangs.node_reports import NodeTold, read_all
from everstep_common.hangs.reports.rank_report import (
    GroupReport,
    Operation,
    OperationState,
    ProcessEnding,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)
from everstep_common.hangs.reports.verdict import Confidence, Culprit, HangClass, HangVerdict

_S = 1_000_000_000


def _report(rank: int, enqueued: int = 7, step: int | None = 3) -> RankHangReport:
    group = GroupReport("default", "0-3", 4, enqueued, enqueued - 1)
    return RankHangReport(rank=rank, world_size=4, groups=(group,), step=step)


def _verdict(kind: HangClass, *ranks: int) -> HangVerdict:
    named = tuple(Culprit(rank, "n0", kind, "it does not come") for rank in ranks)
    return HangVerdict(kind, named, Confidence.CERTAIN, "it does not come")


_CPU = _verdict(HangClass.CPU_SIDE, 2)


def _look(at_s: int, verdict: HangVerdict = _CPU, enqueued: int = 7, ranks: int = 4) -> Look:
    reports = [_report(rank, enqueued) for rank in range(ranks)]
    return Look(at_s * _S, verdict, (), where_ranks_stand(reports))


def _after(*looks: Look) -> Streak:
    streak: Streak | None = None
    for look in looks:
        streak = follow(streak, look)
    assert streak is not None
    return streak


def test_looks_that_find_the_same_are_counted_from_the_first_of_them() -> None:
    streak = _after(_look(10), _look(11), _look(13))
    assert (streak.looks, streak.same_since_ns, streak.unmoved_since_ns) == (3, 10 * _S, 10 * _S)


def test_a_job_goes_on_whose_ranks_stand_elsewhere_a_moment_later() -> None:
    before = [_report(rank) for rank in range(4)]
    assert moving_job(before, before, _CPU) == ""
    after = [_report(rank, enqueued=8 if rank == 1 else 7) for rank in range(4)]
    assert moving_job(before, after, _CPU) == (
        "The job goes on: rank 1 has moved between two looks (rank 2 came last at one moment,"
        " as one does)"
    )
    # Who told nothing the first time has not moved by that.
    assert moving_job(before[:3], before, _CPU) == ""


def _frozen(at_s: int, *ranks: int) -> Look:
    """Return a look that has seen rank 2 stopped, of these ranks."""
    process = ProcessFacts(state=ProcessState.STOPPED, devices=("0000:3b:00.0",))
    reports = [_report(rank) for rank in ranks if rank != 2]
    reports += [RankHangReport(rank=2, world_size=4, process=process)] * (2 in ranks)
    told = [NodeTold("n0", 0, 4, tuple(map(json_text, reports)))]
    return judge_told(told, at_s * _S)


def test_a_look_that_has_missed_the_culprit_withdraws_nothing_while_nobody_moves() -> None:
    first, missed = _frozen(10, 0, 1, 2, 3), _frozen(11, 0, 1, 3)
    assert first.verdict.kind is HangClass.FROZEN
    assert not says_same(first.verdict, missed.verdict)
    streak = _after(first, missed, _frozen(13, 1))
    assert streak.newest.verdict == first.verdict
    assert streak.newest.stuck == (2,)
    assert (streak.looks, streak.same_since_ns, streak.newest.at_ns) == (1, 10 * _S, 13 * _S)
    again = follow(streak, _frozen(17, 0, 1, 2, 3))
    assert (again.looks, again.same_since_ns) == (2, 10 * _S)


def test_a_look_that_has_seen_all_withdraws_what_is_over_and_so_does_a_rank_that_moves() -> None:
    first = _frozen(10, 0, 1, 2, 3)
    told = [NodeTold("n0", 0, 4, tuple(json_text(_report(rank)) for rank in range(4)))]
    runs = judge_told(told, 11 * _S)
    runs = replace(runs, seen=first.seen)
    assert _after(first, runs).newest.verdict == runs.verdict
    moved = [_report(rank, enqueued=8) for rank in (0, 1, 3)]
    gone_on = judge_told([NodeTold("n0", 0, 4, tuple(map(json_text, moved)))], 11 * _S)
    assert _after(first, gone_on).newest.verdict == gone_on.verdict


def test_what_a_look_is_sure_of_itself_is_taken_though_it_has_missed_others() -> None:
    first = _look(10, _verdict(HangClass.CPU_SIDE, 2))
    dead = replace(_look(11, _verdict(HangClass.DEAD, 1), ranks=2))
    assert _after(first, dead).newest.verdict == dead.verdict


def test_a_look_tells_which_devices_the_culprits_have_open() -> None:
    assert _frozen(10, 0, 1, 2, 3).devices == ("0000:3b:00.0",)
    assert _frozen(10, 0, 1, 3).devices is None


def test_another_verdict_begins_anew_and_ranks_have_stood_all_the_same() -> None:
    streak = _after(_look(10), _look(11, _verdict(HangClass.SILENT, 2)))
    assert (streak.looks, streak.same_since_ns, streak.unmoved_since_ns) == (1, 11 * _S, 10 * _S)


def test_a_rank_that_moves_makes_looks_of_one_verdict_two_hangs() -> None:
    streak = _after(_look(10), _look(11), _look(13, enqueued=8))
    assert (streak.looks, streak.same_since_ns, streak.unmoved_since_ns) == (1, 13 * _S, 13 * _S)


def test_a_rank_that_tells_nothing_in_one_look_has_not_moved_by_that() -> None:
    assert _after(_look(10), _look(11, ranks=3), _look(12)).unmoved_since_ns == 10 * _S


def test_a_rank_whose_recorder_did_not_answer_in_one_look_has_not_moved_by_that() -> None:
    """Its step is known by other means; the machine was loaded."""
    full = [_report(rank) for rank in range(4)]
    less = [replace(one, groups=()) for one in full]
    assert moving_job(full, less, _CPU) == moving_job(less, full, _CPU) == ""
    seen, missed = _look(10), replace(_look(11), marks=where_ranks_stand(less))
    assert _after(seen, missed, _look(12)).unmoved_since_ns == 10 * _S
    assert _after(seen, missed, _look(12, enqueued=8)).unmoved_since_ns == 12 * _S
    withdrawn = replace(missed, verdict=_verdict(HangClass.NO_WAIT))
    assert _after(seen, withdrawn).newest.verdict == _CPU
    assert _after(seen, withdrawn, _look(12, enqueued=8)).unmoved_since_ns == 12 * _S
    assert moving_job(less, [replace(one, step=4) for one in full], _CPU) != ""


def test_a_step_and_a_phase_are_moves_without_any_recorder() -> None:
    bare = RankHangReport(rank=0, step=3)
    assert where_ranks_stand([bare]) != where_ranks_stand([replace(bare, step=4)])
    assert where_ranks_stand([bare]) != where_ranks_stand([replace(bare, phase="forward")])
    assert where_ranks_stand([replace(bare, step=None)]) == {}
    assert where_ranks_stand([replace(bare, step=0)]) != {}


def test_verdicts_say_the_same_by_class_culprits_and_whether_they_are_sure() -> None:
    assert says_same(_CPU, replace(_CPU, sentence="other words", confidence=Confidence.LIKELY))
    assert not says_same(_CPU, replace(_CPU, confidence=Confidence.UNSURE))
    assert not says_same(_CPU, _verdict(HangClass.CPU_SIDE, 3))
    assert not says_same(_CPU, _verdict(HangClass.GPU_SIDE, 2))


@pytest.mark.parametrize(
    ("process", "stuck"),
    [
        (ProcessFacts(state=ProcessState.DEAD), True),
        (ProcessFacts(state=ProcessState.STOPPED), True),
        (ProcessFacts(state=ProcessState.UNINTERRUPTIBLE, state_for_ms=10_000), True),
        (ProcessFacts(state=ProcessState.UNINTERRUPTIBLE, state_for_ms=9_999), False),
        (ProcessFacts(gil_held=True, native_stack_unchanged=True), True),
        (ProcessFacts(gil_held=True, native_stack_unchanged=False), False),
        (ProcessFacts(gil_held=True), False),
        (ProcessFacts(native_stack_unchanged=True), False),
        (ProcessFacts(state=ProcessState.SLEEPING), False),
        (ProcessFacts(answers_ping=False), False),
    ],
)
def test_only_what_is_seen_to_be_stuck_is_stuck(process: ProcessFacts, stuck: bool) -> None:
    report = replace(_report(2), process=process)
    assert stuck_ranks([_report(1), report], _CPU) == ((2,) if stuck else ())


@pytest.mark.parametrize(
    "process",
    [
        ProcessFacts(state=ProcessState.UNINTERRUPTIBLE, state_for_ms=60_000),
        ProcessFacts(gil_held=True, native_stack_unchanged=True),
    ],
    ids=["in the kernel", "with the GIL"],
)
def test_in_a_pause_what_only_takes_long_is_not_stuck(process: ProcessFacts) -> None:
    report = replace(_report(2), process=process, phase="pause: save")
    assert stuck_ranks([report], _CPU) == ()
    stopped = replace(report, process=ProcessFacts(state=ProcessState.STOPPED))
    assert stuck_ranks([stopped], _CPU) == (2,)


@pytest.mark.parametrize(
    ("state", "wchan"),
    [
        (ProcessState.UNINTERRUPTIBLE, ""),
        (ProcessState.SLEEPING, "request_wait_answer"),
        (ProcessState.SLEEPING, "wait_woken"),
    ],
    ids=["NFS", "a file system in user space", "a socket"],
)
def test_a_rank_that_reads_slowly_while_it_holds_the_gil_has_ten_seconds(
    state: ProcessState, wchan: str
) -> None:
    process = ProcessFacts(
        state=state, wchan=wchan, state_for_ms=2000, gil_held=True, native_stack_unchanged=True
    )
    report = replace(_report(2), process=process)
    assert stuck_ranks([report], _CPU) == ()
    longer = replace(report, process=replace(process, state_for_ms=10_000))
    assert stuck_ranks([longer], _CPU) == (2,)
    in_a_lock = replace(process, state=ProcessState.SLEEPING, wchan="futex_wait_queue")
    assert stuck_ranks([replace(report, process=in_a_lock)], _CPU) == (2,)


def test_a_look_tells_who_is_in_a_pause() -> None:
    paused = [replace(_report(rank), phase="pause: save\x1b[2J") for rank in (3, 1)]
    told = pause_of([_report(0), *paused])
    assert told.startswith("rank 1, save")
    assert told.isprintable()
    assert pause_of([_report(0), replace(_report(1), phase="forward")]) == ""


def test_what_the_controller_keeps_does_not_tell_in_which_functions_ranks_are() -> None:
    waits = Operation(2, "all_reduce", "4 Float", OperationState.STARTED)
    ahead = GroupReport("default", "0-1", 2, 2, 1, pending_count=1, pending=(waits,))
    behind = GroupReport("default", "0-1", 2, 1, 1)
    stack = ProcessFacts(python_stack=("data.py:3 read_unreleased", "train.py:9 main"))
    reports = [
        RankHangReport(rank=0, world_size=2, groups=(ahead,)),
        RankHangReport(rank=1, world_size=2, groups=(behind,), process=stack),
    ]
    told = [NodeTold("n0", 0, 2, tuple(map(json_text, reports)))]
    assert "read_unreleased" in judge(reports, 2).sentence
    look = judge_told(told)
    assert look.verdict.culprits[0].rank == 1
    assert "unreleased" not in json_text(look.verdict)


def test_a_rank_that_is_no_culprit_is_never_stuck() -> None:
    stopped = replace(_report(1), process=ProcessFacts(state=ProcessState.STOPPED))
    assert stuck_ranks([stopped], _CPU) == ()


def _standing(rank: int, *, waits: bool) -> RankHangReport:
    """Return a report of a rank that waits in operation 7, or has come to 6 and no further."""
    pending = (Operation(7, "all_reduce", "4 Float", OperationState.STARTED),) if waits else ()
    group = GroupReport("default", "0-3", 4, 6 + waits, 6, pending_count=waits, pending=pending)
    return RankHangReport(rank=rank, world_size=4, groups=(group,))


_UNFIT = ProcessEnding(exit_code=0, signal=6, kind="collective_mismatch", text="32 vs 4")


def test_a_rank_that_got_unfit_data_says_that_it_is_the_program_though_its_node_told_nothing() -> (
    None
):
    reports = tuple(json_text(_standing(rank, waits=rank == 3)) for rank in (2, 3))
    silent = NodeTold("n0", 0, 2, (), "its launcher did not answer")
    others = NodeTold("n1", 2, 2, reports)
    assert judge_told((silent, others)).verdict.kind is HangClass.CPU_SIDE
    known = replace(silent, endings=((0, _UNFIT), (9, _UNFIT)))
    verdict = judge_told((known, others)).verdict
    assert (verdict.kind, verdict.culprits, verdict.suspects) == (HangClass.DESYNC, (), "0")


def test_what_a_node_says_of_an_ending_counts_more_than_what_else_is_known() -> None:
    gave_up = ProcessEnding(exit_code=1, signal=0, kind="collective_timeout", text="Timed out")
    process = ProcessFacts(ProcessState.DEAD, ending=gave_up)
    report = json_text(replace(_report(0), process=process))
    told = NodeTold("n0", 0, 4, (report,), endings=((0, _UNFIT),))
    assert read_all([told]).reports[0].process.ending == gave_up
