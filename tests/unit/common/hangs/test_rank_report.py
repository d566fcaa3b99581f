import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.codec import CodecError, from_json, json_text
from everstep_common.hangs.reports.members import MembersError, are_named, members_of, members_text
from everstep_common.hangs.reports.rank_report import (
    Blind,
    EvidenceSource,
    GroupReport,
    Library,
    Operation,
    OperationState,
    ProcessEnding,
    ProcessFacts,
    ProcessState,
    RankHangReport,
)

_OPERATION = Operation(
    sequence=84920,
    name="_reduce_scatter_base",
    shapes="8192x1x5120 BFloat16 -> 2048x1x5120 BFloat16",
    state=OperationState.SCHEDULED,
    created_ns=1758581237531764929,
    frames=("train.py:120 step", "model.py:88 forward"),
)
_GROUP = GroupReport(
    description="TENSOR_MODEL_PARALLEL_GROUP",
    members="0-3",
    size=4,
    enqueued=84925,
    completed=84919,
    pending_count=6,
    pending=(_OPERATION,),
    done="all_reduce 16 Float",
)
_REPORT = RankHangReport(
    rank=3,
    world_size=16,
    node="gpu-0001",
    pid=4711,
    taken_ns=1758581417531764929,
    schema="2.10",
    libraries=(Library("nccl", "2.27.3"), Library("torch", "2.13.0")),
    groups=(_GROUP,) * 13,
    process=ProcessFacts(
        state=ProcessState.SLEEPING,
        state_for_ms=9000,
        wchan="futex_wait",
        answers_ping=True,
        gil_held=False,
        python_stack=("train.py:120 step",) * 24,
        ending=ProcessEnding(exit_code=0, signal=9, kind="killed"),
    ),
    timeout_ms=180_000,
    step=7,
    blind=(Blind(EvidenceSource.NATIVE_STACK, "ptrace_scope is 2"),),
)


_IDLE = {"description": "x", "members": "0-1", "size": 2, "enqueued": 1, "completed": 1}


def test_a_report_comes_back_from_its_json_as_it_was() -> None:
    assert from_json(RankHangReport, json.loads(json_text(_REPORT))) == _REPORT


def test_a_report_of_a_rank_alone_needs_nothing_else() -> None:
    assert from_json(RankHangReport, {"rank": 4}) == RankHangReport(rank=4)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"rank": -1}, "rank"),
        ({"rank": "3"}, "rank"),
        ({"groups": [{"description": "x"}]}, "missing"),
        ({"groups": [_IDLE] * 65}, "65 items"),
        ({"blind": [{"source": "gossip", "reason": ""}]}, "expected one of"),
        ({"tensors": 1}, "unknown field"),
    ],
)
def test_a_report_that_is_none_says_where(changed: dict[str, object], told: str) -> None:
    with pytest.raises(CodecError, match=told):
        from_json(RankHangReport, {"rank": 4, **changed})


def test_a_group_counts_the_operations_that_it_lists() -> None:
    listed = json.loads(json_text(_OPERATION))
    with pytest.raises(CodecError, match="pending_count"):
        from_json(GroupReport, {**_IDLE, "pending": [listed], "pending_count": 0})


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (range(16384), "0-16383"),
        ([0, 9], "0,9"),
        ([1, 5, 9, 13], "1-13:4"),
        ([0, 4, 5, 6, 7, 12, 20, 28], "0,4-7,12-28:8"),
    ],
)
def test_members_are_runs_of_ranks(ranks: list[int], text: str) -> None:
    assert members_text(ranks) == text


@given(st.sets(st.integers(0, 199_999), min_size=1, max_size=40))
def test_members_come_back_from_their_text(ranks: set[int]) -> None:
    assert members_of(members_text(ranks)) == tuple(sorted(ranks))


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "0-7:0", "5,4", "0-99999999999", "200000", "1--2", "٣", "0-3,3-5"]
)
def test_a_text_that_names_no_members_is_refused(text: str) -> None:
    with pytest.raises(MembersError):
        members_of(text)


def test_members_that_take_too_much_text_have_a_digest() -> None:
    text = members_text([n * n for n in range(200)])
    assert not are_named(text)
    with pytest.raises(MembersError):
        members_of(text)
