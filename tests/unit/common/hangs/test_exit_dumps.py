"""Dumps that gloo's ranks leave when they give up, in which every operation is retired."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.hangs.dumps.dump_values import DumpError, read_dump
from everstep_common.hangs.dumps.exit_dumps import ENDED
from everstep_common.hangs.dumps.flight_recorder import report_of_dump
from everstep_common.hangs.judging.judge import judge
from everstep_common.hangs.reports.rank_report import ProcessState, RankHangReport
from everstep_common.hangs.reports.verdict import HangClass

_S = 1_000_000_000
_NOW = 1_000 * _S
_TIMEOUT_MS = 5_000


def _entry(number: int, created_ns: int, **changed: object) -> dict[str, object]:
    """Return an operation as gloo's recorder writes it, torch 2.13."""
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "profiling_name": "gloo:all_reduce",
        "state": "scheduled",
        "retired": True,
        "is_p2p": False,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        "time_created_ns": created_ns,
        "timeout_ms": _TIMEOUT_MS,
        **changed,
    }


def _dump(
    *entries: dict[str, object],
    timed_out: bool = True,
    call: str = "all_reduce",
    counted: int | None = None,
) -> Mapping[str, object]:
    count = str(len(entries) if counted is None else counted)
    status = {"last_enqueued_collective": count, "last_completed_collective": count}
    ended = {"at_ns": _NOW, "timed_out": timed_out, "call": call, "frames": ["a.py:1 main"]}
    return {
        "version": "2.10",
        "pg_config": {"": {"name": "", "desc": "", "ranks": "[0, 1, 2, 3]"}},
        "pg_status": {"0": status},
        "entries": list(entries),
        ENDED: ended,
    }


# Two that were done, and the one that was waited in for five seconds.
_WAITED = (_entry(1, _NOW - 9 * _S), _entry(2, _NOW - 6 * _S), _entry(3, _NOW - 5 * _S - 1))


def _report(dump: Mapping[str, object], rank: int = 0) -> RankHangReport:
    return report_of_dump(read_dump(json.dumps(dump).encode()), rank)


def test_the_operation_in_which_a_rank_gave_up_is_not_done() -> None:
    report = _report(_dump(*_WAITED))
    (group,) = report.groups
    assert (group.enqueued, group.completed, group.pending_count) == (3, 2, 1)
    assert report.process.state is ProcessState.DEAD
    assert report.process.ending is not None
    assert report.process.ending.kind == "collective_timeout"
    assert report.process.python_stack == ("a.py:1 main",)


def test_what_was_enqueued_behind_it_has_waited_as_well() -> None:
    later = (_entry(4, _NOW - 4 * _S), _entry(5, _NOW - 3 * _S))
    (group,) = _report(_dump(*_WAITED, *later, call="")).groups
    assert (group.enqueued, group.completed, group.pending_count) == (5, 2, 3)


@pytest.mark.parametrize("waited_ns", [5 * _S, 5 * _S // 2])
def test_a_rank_whose_connection_closed_while_it_waited_has_waited(waited_ns: int) -> None:
    report = _report(_dump(*_WAITED[:2], _entry(3, _NOW - waited_ns), timed_out=False))
    assert report.groups[0].completed == 2
    assert report.process.ending is not None


@pytest.mark.parametrize("waited_ns", [0, _S // 100, 3 * _S // 2])
def test_who_came_when_the_others_had_given_up_has_not_come_and_is_named(waited_ns: int) -> None:
    late = _dump(*_WAITED[:2], _entry(3, _NOW - waited_ns), timed_out=False)
    waited = [_report(_dump(*_WAITED), rank) for rank in (0, 1, 3)]
    came = _report(late, 2)
    assert (came.groups[0].enqueued, came.process.ending) == (2, None)
    verdict = judge([*waited, came])
    assert [one.rank for one in verdict.culprits] == [2]
    assert verdict.kind is HangClass.CPU_SIDE


@pytest.mark.parametrize("call", ["send", "recv", "batch_isend_irecv"])
def test_a_wait_that_gloo_does_not_record_leaves_the_collectives_done(call: str) -> None:
    (group,) = _report(_dump(*_WAITED, call=call, counted=5)).groups
    assert group.completed == 3


def test_where_a_wait_may_be_of_an_unrecorded_operation_nothing_is_taken_back() -> None:
    (group,) = _report(_dump(*_WAITED, call="", counted=5)).groups
    assert group.completed == 3
    (group,) = _report(_dump(*_WAITED, call="all_reduce", counted=5)).groups
    assert group.completed == 2


def test_operations_of_nccl_are_judged_by_what_nccl_says() -> None:
    entries = [
        {**one, "profiling_name": "nccl:all_reduce", "state": "completed"} for one in _WAITED
    ]
    (group,) = _report(_dump(*entries)).groups
    assert group.completed == 3


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries({"at_ns": _ANY, "timed_out": _ANY, "call": _ANY, "frames": _ANY}) | _ANY,
    _ANY,
    _ANY,
)
def test_whatever_a_rank_says_of_its_end_is_a_report_or_refused(
    ended: object, created: object, status: object
) -> None:
    strange = {**_entry(3, 0), "time_created_ns": created, "timeout_ms": created}
    dump = {**_dump(*_WAITED[:2], strange), ENDED: ended, "pg_status": status}
    try:
        report = _report(dump)
    except DumpError:
        return
    assert all(one.isprintable() for one in report.process.python_stack)
