"""Ranks that wait in the kernel for a file system: told as that, and as nobody's fault."""

from dataclasses import replace

import pytest

from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.judging.process_evidence import waits_for_storage
from everstep_common.hangs.reports.rank_report import (
    GroupReport,
    Operation,
    OperationState,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)
from everstep_common.hangs.reports.verdict import HangClass

_MOUNT = "nfs4 server:/export at /data"
_READS = ProcessFacts(
    state=ProcessState.UNINTERRUPTIBLE,
    state_for_ms=4000,
    wchan="nfs_wait_bit_killable",
    file="/data/shard-7.bin",
    mount=_MOUNT,
)
_WAITS = ProcessFacts(state=ProcessState.SLEEPING, wchan="futex_do_wait")


def _rank(rank: int, process: ProcessFacts, enqueued: int = 8) -> RankHangReport:
    operation = Operation(8, "all_reduce", "4 Float", OperationState.SCHEDULED)
    pending = (operation,) if enqueued == 8 else ()
    group = GroupReport("default", "0-3", 4, enqueued, 7, pending_count=len(pending))
    group = replace(group, pending=pending)
    return RankHangReport(rank=rank, world_size=4, node="n0", groups=(group,), process=process)


def _alone(rank: int, process: ProcessFacts) -> RankHangReport:
    return RankHangReport(rank=rank, world_size=4, node=f"n{rank}", process=process)


def test_all_ranks_in_one_read_that_hangs_wait_for_that_file_on_that_mount() -> None:
    verdict = judge([_alone(rank, _READS) for rank in range(4)], 4)
    assert verdict.kind is HangClass.STORAGE
    assert [one.rank for one in verdict.culprits] == [0, 1, 2, 3]
    assert verdict.sentence == (
        'Ranks 0-3 hold the job back: storage. Each of them: it waits for "/data/shard-7.bin"'
        " on nfs4 server:/export at /data: its process is in the kernel in nfs_wait_bit_killable,"
        " unbroken for 4 s"
    )


@pytest.mark.parametrize("state_for_ms", [0, 400, 60_000])
@pytest.mark.parametrize("gil_held", [None, True])
def test_a_rank_that_others_wait_for_and_that_waits_for_storage_is_told_as_storage(
    state_for_ms: int, gil_held: bool | None
) -> None:
    reads = replace(_READS, state_for_ms=state_for_ms, gil_held=gil_held)
    ranks = [_rank(rank, _WAITS) for rank in range(3)]
    verdict = judge([*ranks, _rank(3, reads, enqueued=7)], 4)
    assert verdict.kind is HangClass.STORAGE
    assert [one.rank for one in verdict.culprits] == [3]


def test_beside_a_rank_that_computes_elsewhere_storage_is_not_all_there_is() -> None:
    ranks = [_rank(0, _WAITS), _rank(1, _WAITS), _rank(2, _READS, enqueued=7)]
    verdict = judge([*ranks, _rank(3, ProcessFacts(ProcessState.RUNNING), enqueued=7)], 4)
    assert {one.kind for one in verdict.culprits} == {HangClass.STORAGE, HangClass.CPU_SIDE}
    assert verdict.kind is HangClass.CPU_SIDE


def test_long_in_the_kernel_for_anything_else_is_frozen_as_before() -> None:
    driver = replace(_READS, wchan="nvidia_ioctl", file="", mount="", state_for_ms=12_000)
    assert judge([_rank(0, _WAITS), _rank(1, driver, enqueued=7)], 4).kind is HangClass.FROZEN


@pytest.mark.parametrize(
    ("state", "wchan", "file", "waits"),
    [
        (ProcessState.SLEEPING, "request_wait_answer", "", True),
        (ProcessState.SLEEPING, "fuse_file_read_iter", "", True),
        (ProcessState.UNINTERRUPTIBLE, "rwsem_down_read_slowpath", "/data/x", True),
        (ProcessState.UNINTERRUPTIBLE, "rwsem_down_read_slowpath", "", False),
        (ProcessState.SLEEPING, "wait_woken", "", False),
        (ProcessState.SLEEPING, "anon_pipe_read", "", False),
        (ProcessState.SLEEPING, "futex_do_wait", "/data/x", False),
        (ProcessState.RUNNING, "", "/data/x", False),
        (ProcessState.STOPPED, "nfs_wait_bit_killable", "/data/x", False),
    ],
)
def test_only_what_a_file_system_answers_is_storage(
    state: ProcessState, wchan: str, file: str, *, waits: bool
) -> None:
    assert waits_for_storage(ProcessFacts(state=state, wchan=wchan, file=file)) is waits
