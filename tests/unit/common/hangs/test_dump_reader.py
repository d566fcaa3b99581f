import json
import pickle
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.codec import from_json, json_text
from everstep_common.hangs.dumps.dump_values import DumpError, read_dump
from everstep_common.hangs.dumps.flight_recorder import report_of_dump
from everstep_common.hangs.dumps.pickles import PickleError, plain_values
from everstep_common.hangs.dumps.rank_dumps import merged
from everstep_common.hangs.reports.rank_report import EvidenceSource, RankHangReport
from hung_jobs.simple import hung_job


def _entry(**changed: object) -> dict[str, object]:
    return {
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
        "retired": False,
        "is_p2p": False,
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4]],
        "output_dtypes": ["Float"],
        **changed,
    }


def _dump(*entries: dict[str, object], **changed: object) -> dict[str, object]:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.10", "pg_config": config, "entries": list(entries), **changed}


def _calling(protocol: int) -> bytes:
    class Calls:
        def __reduce__(self) -> tuple[object, tuple[int]]:
            return (exit, (3,))

    return pickle.dumps({"entries": [Calls()]}, protocol)


@pytest.mark.parametrize("protocol", range(1, pickle.HIGHEST_PROTOCOL + 1))
def test_a_dump_that_calls_something_is_refused_by_name(protocol: int) -> None:
    with pytest.raises(DumpError, match="nothing of it was executed"):
        read_dump(_calling(protocol))


@pytest.mark.parametrize("protocol", range(1, pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_as_python_reads_them(protocol: int) -> None:
    dump = _dump(_entry(), _entry(time_created_ns=2**62, timeout_ms=None, duration_ms=0.5))
    assert plain_values(pickle.dumps(dump, protocol)) == dump


def test_a_dump_that_refers_to_a_far_place_in_the_memo_takes_no_memory() -> None:
    assert plain_values(b"\x80\x02}r\xff\xff\xff\xff.") == {}


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "it is empty"),
        (b"\x80\x02}", "ends early"),
        (b"{", "cut off"),
        (b"\x80\x02X\xff\xff\xff\x7fabc", "ends early"),
        (b"(" * 60 + b"]" + b"l" * 50 + b".", "holds more than one value"),
        (b"(" * 70 + b"]" + b"l" * 70 + b".", "nested more than 64 deep"),
        (b"\x80\x02" + b"(" * 70 + b"]" + b"t" * 70 + b".", "nested more than 64 deep"),
        (b"{" + b'"a":' + b"[" * 100_000, "nested too deeply"),
        (b"[" + b"[]," * 9, "no operation of a plain pickle"),
        (b'{"entries": ' + b"[" + b"{}," * 3_000_000, "more than 4,000,000 values"),
        (b'{"version": "2.10"}', "no entries"),
        (b"\x80\x02]q\x00.", "no entries"),
        (b"\x80\x02\x8b\xff\xff\xff\x7f.", "an integer of"),
        (b"hello", "missing|refers"),
    ],
)
def test_bytes_that_are_no_dump_get_one_sentence(data: bytes, told: str) -> None:
    with pytest.raises(DumpError, match=told) as caught:
        read_dump(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_pickle_of_more_values_than_a_recorder_has_is_refused() -> None:
    with pytest.raises(PickleError, match="more than 4,000,000 values"):
        plain_values(b"\x80\x02(" + b"N" * 4_000_001 + b"l.")


def _doubled(times: int, make: bytes) -> bytes:
    """Return operations that make a value which holds the one before twice, again and again."""
    mark = b"" if make == b"\x86" else b"("
    doubled = (mark + b"h%ch%c" % (n, n) + make + b"q%c" % (n + 1) for n in range(times))
    # All but the last are left on the stack.
    return b")q\0" + b"".join(doubled)


@pytest.mark.parametrize("make", [b"\x86", b"t", b"l"], ids=["pairs", "tuples", "lists"])
def test_four_hundred_bytes_that_hold_more_than_any_memory_are_refused(make: bytes) -> None:
    with pytest.raises(PickleError, match="holds more than 16,000,000 values"):
        plain_values(_doubled(60, make) + b".")


def test_what_is_held_already_does_not_grow_behind_the_back_of_its_holder() -> None:
    # A list in a tuple, and then the tuple in that list.
    with pytest.raises(PickleError, match="adds to a value that another one holds"):
        plain_values(b"]q\0\x85q\1h\0h\1a.")


def test_integers_that_all_have_one_hash_are_no_keys() -> None:
    large = ((2**61 - 1) * 2**20).to_bytes(12, "little")
    with pytest.raises(PickleError, match="a key is no text or number of 64 bits"):
        plain_values(b"}\x8a\x0c" + large + b"Ns.")
    assert plain_values(pickle.dumps({-(2**63): 1, 2**63 - 1: 2})) == {-(2**63): 1, 2**63 - 1: 2}


def test_a_file_of_operations_that_make_no_value_ends_by_itself() -> None:
    with pytest.raises(PickleError, match="more than 12,000,000 operations"):
        plain_values(b"(" * 13_000_000)
    with pytest.raises(PickleError, match="remembers more than 4,000,000 values"):
        plain_values(b"]" + b"\x94" * 4_100_000)


@pytest.mark.parametrize("huge", [[[1] * 1000] * 1000, {"a": 1}, "x" * 1000, None, 10**18])
def test_what_is_no_size_of_a_tensor_is_not_written_out(huge: object) -> None:
    report = report_of_dump(_dump(_entry(input_sizes=[[huge]])), 0)
    assert len(report.groups[0].pending[0].shapes) < 60


def test_groups_without_end_are_refused_before_they_take_memory() -> None:
    many = {str(number): {"desc": "a", "ranks": "[0]"} for number in range(20_001)}
    with pytest.raises(DumpError, match="more than 20,000"):
        report_of_dump(_dump(_entry(), pg_config=many), 0)
    default = {str(number): {"desc": "default_pg"} for number in range(1000)}
    with pytest.raises(DumpError, match="more than 4,000,000 members"):
        report_of_dump(_dump(_entry(), pg_config=default), 0, world_size=200_000)


def test_numbers_of_a_dump_may_be_text_or_missing() -> None:
    status = {
        "0": {
            "last_enqueued_collective": "7",
            "last_started_collective": "-1",
            "last_completed_collective": "6",
        }
    }
    text = json.dumps(_dump(_entry(collective_seq_id=7), pg_status=status))
    (group,) = report_of_dump(read_dump(text.encode()), 0).groups
    assert (group.enqueued, group.completed, group.pending_count) == (7, 6, 1)


def test_an_operation_of_gloo_is_done_when_it_is_retired_whatever_its_state() -> None:
    config = {"": {"name": "", "desc": "", "ranks": "[0, 1]"}}
    entries = [
        _entry(profiling_name="gloo:all_reduce", retired=True),
        _entry(profiling_name="gloo:barrier", record_id=1, collective_seq_id=2),
    ]
    (group,) = report_of_dump(_dump(*entries, pg_config=config), 0).groups
    assert (group.description, group.members) == ("default_pg", "0-1")
    assert (group.enqueued, group.completed, group.done) == (2, 1, "all_reduce 4 Float")


def test_groups_that_gloo_does_not_describe_are_known_by_their_name() -> None:
    entry = _entry(profiling_name="gloo:all_reduce", process_group=("3", "undefined"), pg_id=1)
    config = {"": {"name": "", "desc": "", "ranks": "[]"}}
    (group,) = [
        one
        for one in report_of_dump(_dump(entry, pg_config=config), 1, world_size=4).groups
        if one.description == "undefined"
    ]
    assert (group.members, group.size) == ("group:3", 0)


def test_gloo_counts_sends_and_receives_with_its_collectives() -> None:
    status = {"0": {"last_enqueued_collective": "5", "last_completed_collective": "4"}}
    dump = _dump(_entry(profiling_name="gloo:barrier", collective_seq_id=3), pg_status=status)
    (group,) = report_of_dump(dump, 0).groups
    assert (group.enqueued, group.p2p_enqueued, group.p2p_completed) == (3, 2, None)


def test_groups_without_an_operation_are_told_by_the_order_in_which_they_were_made() -> None:
    config = {
        name: {"name": name, "desc": f"group {name}", "ranks": "[0, 1]"}
        for name in ("0", "9", "12")
    }
    status = {
        number: {"last_enqueued_collective": last, "last_completed_collective": last}
        for number, last in (("0", 4), ("2", 5), ("3", 6))
    }
    report = report_of_dump({"pg_config": config, "pg_status": status, "entries": []}, 1)
    assert {one.description: one.enqueued for one in report.groups} == {
        "group 0": 4,
        "group 9": 5,
        "group 12": 6,
    }


def test_a_dump_of_another_rank_is_refused() -> None:
    with pytest.raises(DumpError, match="not rank 2's: its group default_pg has ranks 0-1"):
        report_of_dump(_dump(_entry()), 2)


def test_a_dump_that_tells_of_another_ranks_sends_is_refused() -> None:
    sent = _entry(profiling_name="nccl:send 1->0", is_p2p=True, p2p_seq_id=1)
    with pytest.raises(DumpError, match="tells of a send of another"):
        report_of_dump(_dump(sent), 0)


def test_two_dumps_of_a_rank_that_contradict_each_other_are_no_evidence() -> None:
    one = report_of_dump(_dump(_entry()), 0)
    other = report_of_dump(_dump(_entry(collective_seq_id=2)), 0)
    assert merged([one, one])[0] == one
    (report,) = merged([one, other]).values()
    assert report.groups == ()
    assert report.blind[0].source is EvidenceSource.IDENTITY


def test_a_rank_that_leaves_an_operation_out_departs_from_its_own_history() -> None:
    names = ["all_reduce", "broadcast"] * 20 + ["all_reduce", "all_reduce"]
    entries = [
        _entry(
            record_id=place,
            collective_seq_id=place + 1,
            profiling_name=f"gloo:{name}",
            retired=place < len(names) - 1,
        )
        for place, name in enumerate(names)
    ]
    told = report_of_dump(_dump(*entries), 0).departure
    assert told == "all_reduce of default_pg where broadcast of default_pg came the 20 times before"
    assert report_of_dump(_dump(*entries[:-2]), 0).departure == ""


def test_a_report_of_a_large_recorder_stays_small() -> None:
    for report in hung_job(3, "cpu").reports:
        assert len(report.groups) <= 64
        assert all(len(one.pending) <= 8 for one in report.groups)


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)
_fields = st.sampled_from([*_entry(), "frames", "timeout_ms", "time_created_ns"])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with suppress(DumpError):
        assert isinstance(read_dump(data), dict)


@given(st.integers(1, 5), st.data())
def test_any_changed_pickle_is_read_or_refused(protocol: int, data: st.DataObject) -> None:
    whole = bytearray(pickle.dumps(_dump(_entry(), _entry(record_id=1)), protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DumpError):
        assert report_of_dump(read_dump(bytes(whole)), 0).rank == 0


@given(st.dictionaries(_fields, _values, max_size=4), _values, _values)
def test_any_values_in_a_dump_are_used_left_out_or_refused(
    changed: dict[str, object], config: object, status: object
) -> None:
    for dump in (
        _dump(_entry(**changed), _entry(record_id=1)),
        _dump(_entry(**changed), pg_config=config),
        _dump(_entry(), pg_status=status),
        _dump(_entry(), pg_status={"0": status}, pg_config={"0": config}),
    ):
        with suppress(DumpError):
            report = report_of_dump(dump, 0)
            assert from_json(RankHangReport, json.loads(json_text(report))) == report
