"""Coalesced sends and receives: torch writes each as scheduled for ever, and one end for all."""

from collections.abc import Sequence

import pytest

from everstep_common.hangs.dumps.flight_recorder import report_of_dump
from everstep_common.hangs.reports.rank_report import GroupReport

_Entry = dict[str, object]


def _entry(
    record: int, name: str, collective: int, p2p: int, *, done: bool, is_p2p: bool = False
) -> _Entry:
    return {
        "record_id": record,
        "pg_id": 1,
        "process_group": ("1", "pipe"),
        "collective_seq_id": collective,
        "p2p_seq_id": p2p,
        "profiling_name": f"nccl:{name}",
        "time_created_ns": record,
        "input_sizes": [],
        "output_sizes": [],
        "state": "completed" if done else "scheduled",
        "retired": done,
        "is_p2p": is_p2p,
    }


def _batch(record: int, collective: int, p2p: int, *, done: bool) -> list[_Entry]:
    """Return what torch writes of one `batch_isend_irecv` of rank 1 with both its neighbours."""
    return [
        _entry(record, "send 1->2", collective, p2p, done=False, is_p2p=True),
        _entry(record + 1, "recv 1<-0", collective, p2p, done=False, is_p2p=True),
        _entry(record + 2, "coalesced", collective, p2p, done=done),
    ]


def _read(
    entries: Sequence[_Entry], schema: str = "2.9", status: tuple[int, int] | None = None
) -> GroupReport:
    dump: dict[str, object] = {
        "version": schema,
        "pg_config": {"1": {"name": "1", "desc": "pipe", "ranks": "[0, 1, 2, 3]"}},
        "entries": list(entries),
    }
    if status:
        enqueued, completed = status
        counts = {
            "last_enqueued_collective": enqueued,
            "last_started_collective": -1,
            "last_completed_collective": completed,
        }
        dump["pg_status"] = {"1": counts}
    return report_of_dump(dump, 1, world_size=4).groups[0]


def test_a_batch_is_as_done_as_its_end_says() -> None:
    group = _read([*_batch(0, 0, 1, done=True), *_batch(3, 0, 2, done=False)])
    assert [(one.name, one.sequence, one.peer) for one in group.pending] == [
        ("send", 2, 2),
        ("recv", 2, 0),
    ]
    assert (group.p2p_enqueued, group.p2p_completed) == (2, 1)
    assert (group.enqueued, group.completed) == (0, 0)


def test_of_a_dump_of_active_operations_the_ends_of_what_is_done_are_missing() -> None:
    done = [one for one in _batch(0, 0, 1, done=True) if one["state"] == "scheduled"]
    group = _read([*done, *_batch(3, 0, 2, done=False)])
    assert {one.sequence for one in group.pending} == {2}


@pytest.mark.parametrize("status", [None, (2, 2)])
def test_batches_without_any_end_are_done(status: tuple[int, int] | None) -> None:
    parts = [*_batch(0, 0, 1, done=True), *_batch(3, 0, 2, done=True)]
    group = _read([one for one in parts if one["state"] == "scheduled"], status=status)
    assert group.pending == ()


def test_a_batch_that_is_not_counted_yet_is_the_one_that_its_rank_is_at() -> None:
    parts = [*_batch(0, 0, 1, done=True), *_batch(3, 0, 2, done=True)[:2]]
    active = [one for one in parts if one["state"] == "scheduled"]
    group = _read(active, status=(1, 0))
    assert {one.sequence for one in group.pending} == {2}


def test_single_sends_and_receives_stay_what_they_are() -> None:
    single = [
        _entry(0, "send 1->2", 0, 1, done=True, is_p2p=True),
        _entry(1, "recv 1<-0", 0, 2, done=False, is_p2p=True),
    ]
    group = _read(single, status=(2, 1))
    assert [(one.name, one.sequence) for one in group.pending] == [("recv", 2)]


@pytest.mark.parametrize(
    ("schema", "numbers"),
    [("2.4", (2, 3)), ("2.9", (1, 1))],
    ids=["counted twice", "counted apart"],
)
def test_batches_that_older_torch_counts_as_collectives_are_no_collectives(
    schema: str, numbers: tuple[int, int]
) -> None:
    first, second = numbers
    group = _read(
        [
            _entry(0, "all_reduce", 1, 0, done=True),
            *_batch(1, first, 1, done=True),
            *_batch(4, second, 2, done=True),
            _entry(7, "all_reduce", second + 1, 2, done=False),
        ],
        schema,
    )
    assert (group.enqueued, group.completed) == (2, 1)


def test_a_batch_of_collectives_is_one_collective() -> None:
    parts = [_entry(place, "_all_gather_base", 3, 0, done=False) for place in range(3)]
    done = _read([*parts, _entry(3, "ALLGATHER_coalesced", 3, 0, done=True)])
    assert (done.enqueued, done.completed, done.pending) == (3, 3, ())
    waits = _read([*parts, _entry(3, "coalesced", 3, 0, done=False)])
    assert [(one.name, one.sequence) for one in waits.pending] == [("_all_gather_base", 3)]
