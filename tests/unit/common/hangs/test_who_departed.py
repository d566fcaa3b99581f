"""Who is named where the program is at fault: the rank that did what it never did before."""

from dataclasses import replace

import pytest

from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.rank_report import (
    GroupReport,
    Operation,
    OperationState,
    ProcessEnding,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)
from everstep_common.hangs.reports.verdict import Confidence, HangClass, HangVerdict

_DEPARTED = "send to rank 3 where recv from rank 1 came the 40 times before"
_IN_SEND = "distributed_c10d.py:2753 send"
_IN_ALL_REDUCE = "distributed_c10d.py:3252 all_reduce"
_UNFIT = ProcessEnding(
    exit_code=0, signal=6, text="Received data size doesn't match expected size."
)
_CLOSED = ProcessEnding(exit_code=1, signal=0, text="RuntimeError: Connection closed by peer")


def _group(enqueued: int, completed: int, members: str = "0-3", size: int = 4) -> GroupReport:
    waits = Operation(completed + 1, "all_reduce", "4 Float", OperationState.SCHEDULED)
    pending = (waits,) if enqueued > completed else ()
    return GroupReport(
        members, members, size, enqueued, completed, pending_count=len(pending), pending=pending
    )


def _rank(
    rank: int, stack: str = "", *groups: GroupReport, departure: str = "", node: str = "gpu-1"
) -> RankHangReport:
    process = ProcessFacts(
        ProcessState.SLEEPING,
        python_stack=(stack,) if stack else (),
        native_stack=("libpython3.11.so.1.0",),
    )
    return RankHangReport(
        rank=rank,
        world_size=4,
        backend="gloo",
        groups=groups,
        process=process,
        departure=departure,
        node=node,
    )


def _named(verdict: HangVerdict) -> dict[int, HangClass]:
    return {one.rank: one.kind for one in verdict.culprits}


def _unrecorded_wait(*departed: int) -> list[RankHangReport]:
    """Return ranks of which rank 2 waits in a send, and all others for it in a collective."""
    others = [_rank(rank, _IN_ALL_REDUCE, _group(7, 6)) for rank in (0, 1, 3)]
    everybody = [*others, _rank(2, _IN_SEND, _group(6, 6))]
    return [replace(one, departure=_DEPARTED) if one.rank in departed else one for one in everybody]


def test_a_rank_that_left_out_a_receive_is_named_though_another_waits_in_it() -> None:
    assert _named(judge(_unrecorded_wait())) == {}
    verdict = judge(_unrecorded_wait(3))
    assert _named(verdict) == {3: HangClass.DESYNC}
    assert (verdict.confidence, verdict.suspects) == (Confidence.LIKELY, "")
    assert f"It did {_DEPARTED}" in verdict.sentence


def test_where_two_ranks_did_something_new_neither_is_named() -> None:
    """As where a program evaluates for the first time."""
    verdict = judge(_unrecorded_wait(0, 3))
    assert (verdict.kind, _named(verdict), verdict.suspects) == (HangClass.DESYNC, {}, "2")


def test_a_rank_that_ends_over_data_that_does_not_fit_leads_to_the_one_that_departed() -> None:
    unfit = replace(_rank(1), process=ProcessFacts(ProcessState.DEAD, ending=_UNFIT))
    closed = [
        replace(_rank(rank), process=ProcessFacts(ProcessState.DEAD, ending=_CLOSED))
        for rank in (0, 2, 3)
    ]
    assert _named(judge([unfit, *closed])) == {}
    closed[1] = replace(closed[1], departure="all_reduce of 8 Float where 4 Float came")
    assert _named(judge([unfit, *closed])) == {2: HangClass.DESYNC}


@pytest.mark.parametrize(
    ("stack", "kind"),
    [("data.py:7 load", HangClass.CPU_SIDE), (_IN_SEND, HangClass.DESYNC)],
    ids=["reads its data", "sends"],
)
def test_who_is_waited_for_departed_only_where_it_is_in_communication(
    stack: str, kind: HangClass
) -> None:
    waiting = [_rank(rank, _IN_ALL_REDUCE, _group(7, 6)) for rank in (0, 1, 3)]
    verdict = judge([*waiting, _rank(2, stack, _group(6, 6), departure=_DEPARTED)])
    assert _named(verdict) == {2: kind}


def test_of_a_circle_the_rank_that_stands_elsewhere_counts_more_than_a_departure() -> None:
    """Rank 1 reads its data with an operation under way, and rank 0 was the first to evaluate."""
    first, second = _group(7, 6, "0-1", 2), replace(_group(6, 6, "0-1", 2), description="b")
    one = _rank(0, _IN_ALL_REDUCE, first, second, departure=_DEPARTED)
    other = _rank(1, "data.py:7 load", _group(6, 6, "0-1", 2), _other(7))
    assert _named(judge([one, other], 2)) == {1: HangClass.CPU_SIDE}


def _other(enqueued: int) -> GroupReport:
    return replace(_group(enqueued, 6, "0-1", 2), description="b")


def test_where_ranks_are_on_several_nodes_a_departure_says_that_it_is_no_network() -> None:
    reports = [replace(one, node=f"gpu-{one.rank}") for one in _unrecorded_wait()]
    assert judge(reports).confidence is Confidence.UNSURE
    reports = [replace(one, node=f"gpu-{one.rank}") for one in _unrecorded_wait(3)]
    verdict = judge(reports)
    assert (_named(verdict), verdict.confidence) == ({3: HangClass.DESYNC}, Confidence.LIKELY)


@pytest.mark.parametrize(
    ("stack", "kind"),
    [("", HangClass.DESYNC), ("data.py:7 load", HangClass.CPU_SIDE)],
    ids=["nobody could read its stack", "it stands elsewhere"],
)
def test_what_nobody_can_tell_is_the_program_only_where_no_rank_stands_elsewhere(
    stack: str, kind: HangClass
) -> None:
    """Rank 2 waits in a send; of rank 1 its operations tell nothing."""
    waiting = [_rank(rank, _IN_ALL_REDUCE, _group(7, 6)) for rank in (0, 3)]
    behind = [_rank(2, _IN_SEND, _group(6, 6)), _unread(1, stack)]
    departed = replace(waiting[1], departure=_DEPARTED)
    assert judge([*waiting, *behind]).kind is not HangClass.DESYNC
    assert judge([waiting[0], departed, *behind]).kind is kind


def _unread(rank: int, stack: str) -> RankHangReport:
    found = _rank(rank, stack, _group(7, 7))
    process = replace(found.process, state=ProcessState.RUNNING, native_stack=())
    return replace(found, process=process)
