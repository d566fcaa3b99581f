"""A torch built for NCCL has two recorders; what a job does is in one of them, or in both."""

import json
from collections.abc import Mapping, Sequence

import pytest

from everstep_common.hangs.dumps.dump_values import DumpError
from everstep_common.hangs.dumps.exit_dumps import ENDED
from everstep_common.hangs.dumps.two_recorders import OF_NCCL, report_of_both, report_of_content
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.rank_report import ProcessState, RankHangReport
from everstep_common.hangs.reports.verdict import HangClass

# As torch 2.15 writes a recorder that has seen nothing: without a list of operations.
_NOTHING: Mapping[str, object] = {
    "comm_lib_version": "",
    "nccl_comm_state": {},
    "pg_config": {},
    "pg_status": {},
    "version": "2.10",
}


def _dump(backend: str, done: int, waits: str = "", **changed: object) -> dict[str, object]:
    """Return a dump of the default group's two ranks: so many done, and one that waits."""
    names = ["all_reduce"] * done + ([waits] if waits else [])
    entries = [
        {
            "record_id": number,
            "pg_id": 0,
            "process_group": ["0", "default_pg"],
            "collective_seq_id": number + 1,
            "p2p_seq_id": 0,
            "profiling_name": f"{backend}:{name}",
            "state": "completed" if backend == "nccl" and number < done else "scheduled",
            "retired": number < done,
            "is_p2p": False,
            "time_created_ns": 1_000 * number,
            "timeout_ms": 600_000,
        }
        for number, name in enumerate(names)
    ]
    status = {"last_enqueued_collective": str(len(names)), "last_completed_collective": str(done)}
    config = {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}
    dump: dict[str, object] = {
        "version": "2.10",
        "pg_config": {"0" if backend == "nccl" else "": config},
        "pg_status": {"0": status},
    }
    # torch leaves out a list that would be empty.
    return {**dump, **({"entries": entries} if entries else {}), **changed}


def _report(others: Mapping[str, object], nccl: Mapping[str, object], rank: int) -> RankHangReport:
    return report_of_both(others, nccl, rank, world_size=2)


def _culprits(reports: Sequence[RankHangReport]) -> list[int]:
    return [one.rank for one in judge(reports, 2).culprits]


def test_a_job_of_nccl_is_read_though_the_other_recorder_knows_nothing() -> None:
    reports = [
        _report(_NOTHING, _dump("nccl", 5, "all_reduce"), 0),
        _report(_NOTHING, _dump("nccl", 5), 1),
    ]
    (group,) = reports[0].groups
    assert (group.description, group.enqueued, group.completed) == ("default_pg", 6, 5)
    assert reports[0].backend == "nccl"
    assert reports[0].blind == ()
    assert _culprits(reports) == [1]


def test_a_job_of_gloo_is_read_as_by_a_torch_without_nccl() -> None:
    for rank, dump in ((0, _dump("gloo", 5, "all_reduce")), (1, _dump("gloo", 5))):
        assert _report(dump, _NOTHING, rank) == _report(dump, {}, rank)
        assert _report(dump, {}, rank).groups[0].description == "default_pg"


@pytest.mark.parametrize("done_on_cpus", [0, 3])
def test_who_does_not_come_to_gloo_s_barrier_of_a_job_of_both_is_named(done_on_cpus: int) -> None:
    reports = [
        _report(_dump("gloo", done_on_cpus, "barrier"), _dump("nccl", 5), 0),
        _report(_dump("gloo", done_on_cpus), _dump("nccl", 5), 1),
    ]
    assert {one.description for one in reports[1].groups} == {"default_pg", "default_pg on CPUs"}
    assert reports[0].backend == "gloo"  # in which it waits
    assert _culprits(reports) == [1]


def test_who_does_not_come_to_nccl_s_reduction_of_a_job_of_both_is_named() -> None:
    reports = [
        _report(_dump("gloo", 3), _dump("nccl", 5, "all_reduce"), 0),
        _report(_dump("gloo", 3), _dump("nccl", 5), 1),
    ]
    assert reports[0].backend == "nccl"
    assert _culprits(reports) == [1]


def test_a_rank_that_has_recorded_nothing_at_all_says_so() -> None:
    report = _report(_NOTHING, _NOTHING, 0)
    assert [one.reason for one in report.blind] == ["it has recorded no operation at all"]


def test_a_dump_that_a_rank_of_nccl_left_when_it_ended_has_both() -> None:
    ended = {"at_ns": 10**12, "timed_out": True, "call": "all_reduce", "frames": ["a.py:1 main"]}
    left = {**_NOTHING, ENDED: ended, OF_NCCL: _dump("nccl", 5, "all_reduce")}
    report = report_of_content(json.dumps(left).encode(), 0, world_size=2)
    assert report.process.state is ProcessState.DEAD
    assert report.groups[0].enqueued == 6
    verdict = judge([report, _report(_NOTHING, _dump("nccl", 5), 1)], 2)
    assert verdict.kind is not HangClass.NO_WAIT
    assert [one.rank for one in verdict.culprits] == [1]


def test_a_recorder_of_nccl_that_is_another_rank_s_is_refused() -> None:
    theirs = {"0": {"name": "0", "desc": "default_pg", "ranks": "[4, 5]"}}
    with pytest.raises(DumpError, match="it is not rank 0's"):
        _report(_NOTHING, _dump("nccl", 5, pg_config=theirs), 0)
