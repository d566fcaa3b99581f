"""When a rank enqueued its newest collectives: which are told, in how little, what is refused."""

import base64
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_common.codec import from_json, json_text, to_json
from everstep_common.hangs.dumps.dump_values import read_dump
from everstep_common.hangs.dumps.flight_recorder import recent_of_dump
from everstep_common.hangs.reports.rank_report import RankHangReport
from everstep_common.hangs.reports.recent_collectives import (
    RANK_SAMPLES_MAX,
    RecentCollectives,
    Sample,
    SamplesError,
    recent_of,
    samples_of,
)

_MS, _BEGAN_NS = 10**6, 1_790_000_000 * 10**9


def _steps(count: int, buckets: int = 3) -> list[Sample]:
    """Return what a rank enqueues that has buckets a step, one after the other, and then works."""
    found = []
    for step in range(count):
        for bucket in range(buckets):
            at_ns = _BEGAN_NS + step * 200 * _MS + bucket * 5 * _MS + step % 7
            number = step * buckets + bucket + 1
            found.append(Sample(number, at_ns, f"all_reduce {bucket}", 1000 * bucket))
    return found


def test_the_last_collective_of_each_step_is_told_of_the_newest_steps() -> None:
    samples = _steps(100)
    recent = recent_of({"dp": samples})["dp"]
    told = samples_of(recent)
    assert [one.sequence for one in told] == [3 * step for step in range(37, 101)]
    assert recent.label == "all_reduce 2"
    assert recent.recorded == 63 * 3 + 1
    known = {one.sequence: one for one in samples}
    for one in told:
        assert one.duration_us == 2000
        assert 0 <= known[one.sequence].created_ns - one.created_ns < 1000


def test_a_rank_tells_of_its_busiest_groups_and_of_no_more_than_fits() -> None:
    groups = {f"group {number}": _steps(100 + number, 1) for number in range(20)}
    recent = recent_of(groups)
    assert sum(len(samples_of(one)) for one in recent.values()) == RANK_SAMPLES_MAX
    assert "group 19" in recent
    assert "group 0" not in recent


def test_what_does_not_repeat_is_not_told() -> None:
    assert recent_of({"dp": [replace(one, label=str(one.sequence)) for one in _steps(50)]}) == {}
    assert recent_of({"dp": _steps(5), "empty": []}) == {}


def test_what_was_before_the_clock_was_set_is_left_out() -> None:
    samples = _steps(40, 1)
    moved = [
        replace(one, created_ns=one.created_ns - (10**12 if one.sequence > 20 else 0))
        for one in samples
    ]
    told = samples_of(recent_of({"dp": moved})["dp"])
    assert [one.sequence for one in told] == list(range(21, 41))


def _recent(**changed: object) -> RecentCollectives:
    return replace(recent_of({"dp": _steps(30, 1)})["dp"], **changed)  # type: ignore[arg-type]


def _packed(size: int) -> str:
    return base64.b64encode(b"\1\0\0\0" * size).decode()


@pytest.mark.parametrize(
    "changed",
    [
        {"sequences": _packed(3)},
        {"times_us": "no base64"},
        {"times_us": base64.b64encode(b"123").decode()},
        {"durations_us": _packed(29)},
    ],
)
def test_lists_that_do_not_fit_are_refused(changed: dict[str, str]) -> None:
    with pytest.raises(SamplesError):
        samples_of(_recent(**changed))


@given(st.lists(st.tuples(st.integers(-5, 2**64), st.integers(-(2**63), 2**63 - 1)), max_size=80))
def test_any_numbers_are_told_in_bounds_and_read_again(numbers: list[tuple[int, int]]) -> None:
    samples = [Sample(one, at_ns, "all_reduce") for one, at_ns in numbers if one >= 0 <= at_ns]
    for recent in recent_of({"dp": samples}).values():
        assert from_json(RecentCollectives, to_json(recent)) == recent
        told = samples_of(recent)
        assert [one.sequence for one in told] == sorted({one.sequence for one in told})


def _dump(count: int, **changed: object) -> bytes:
    entries = ",".join(
        f'{{"record_id":{one},"pg_id":0,"process_group":["0","default_pg"],"p2p_seq_id":0,'
        f'"collective_seq_id":{one + 1},"profiling_name":"nccl:all_reduce","is_p2p":false,'
        f'"time_created_ns":{_BEGAN_NS + one * 10**8},"input_sizes":[[4]],"output_sizes":[[4]],'
        f'"duration_ms":{changed.get("duration", 2.5)},"state":"completed","retired":true}}'
        for one in range(count)
    )
    config = '{"0":{"name":"0","desc":"default_pg","ranks":"[0, 1]"}}'
    return f'{{"version":"2.10","pg_config":{config},"entries":[{entries}]}}'.encode()


def test_a_dump_of_two_thousand_collectives_is_told_in_some_two_kilobytes() -> None:
    report = recent_of_dump(read_dump(_dump(2000)), 0)
    (group,) = report.groups
    assert group.recent is not None
    told = samples_of(group.recent)
    assert [one.sequence for one in told] == list(range(1937, 2001))
    assert {one.duration_us for one in told} == {2500}
    text = json_text(report)
    assert len(text) < 2300
    assert from_json(RankHangReport, to_json(report)) == report


@pytest.mark.parametrize("duration", ["-1.0", "NaN", "Infinity", "1e300", '"2.5"', "null", "[]"])
def test_a_duration_that_is_none_is_not_told(duration: str) -> None:
    (group,) = recent_of_dump(read_dump(_dump(30, duration=duration)), 0).groups
    assert group.recent is not None
    assert not group.recent.durations_us
