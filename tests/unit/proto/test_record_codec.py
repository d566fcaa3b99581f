"""Reports survive protobuf, frame and journal, and hostile ones are refused with a sentence."""

import json
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, replace
from typing import Annotated, Any

import msgspec
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep_common import frames
from everstep_common.bounds import Integer, Items, Text
from everstep_common.hints import hints_of
from everstep_common.orders import NodeOrder, VaultDirective
from everstep_common.reports import (
    DataRange,
    FindingRaised,
    LauncherJoined,
    Phase,
    PhaseReached,
    RankExited,
    Report,
    RollbackAsked,
    StepsCompleted,
    Storage,
)
from everstep_proto.generated import fleet_pb2
from everstep_proto.orders import order_from_wire, order_to_wire
from everstep_proto.record_codec import WireError, from_wire, shape_of, to_wire
from everstep_proto.reports import is_job_name, job_of, record_of, report_of
from fakes.report_values import MESSAGES, plain, plain_one, records, samples_at_bounds

_KINDS: tuple[type, ...] = typing.get_args(Report)
# The same values in each run, however slow the machine is beside other work.
_FEW = settings(
    max_examples=30,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
_EXITED = RankExited(
    generation=3, rank=7, exit_code=1, signal=0, at_boot_ns=99, last_line="boom", step=41
)
_JOINED = LauncherJoined(
    nodes_min=1,
    nodes_max=4,
    processes_per_node=8,
    reform=False,
    restarts_max=3,
    free_port=29500,
    token_sha256="a" * 64,
    uid=1000,
)


def _message(kind: type) -> type[Message]:
    message: type[Message] = getattr(fleet_pb2, kind.__name__)
    return message


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@_FEW
def test_a_report_survives_its_record_with_the_name_of_its_job(
    kind: type, data: st.DataObject
) -> None:
    report: Any = data.draw(records(kind))
    wire = fleet_pb2.Record.FromString(record_of(report, "demo").SerializeToString())
    assert wire.job == job_of(wire) == "demo"
    assert report_of(wire) == report


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
@given(payload=st.binary(max_size=300))
@_FEW
def test_arbitrary_bytes_are_a_report_or_a_wire_error(kind: type, payload: bytes) -> None:
    with suppress(WireError, DecodeError):
        assert type(from_wire(kind, _message(kind).FromString(payload))) is kind


_TEXTS = st.text(max_size=8)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | _TEXTS
_JSON = _LEAVES | st.lists(_LEAVES, max_size=3) | st.dictionaries(_TEXTS, _LEAVES, max_size=3)


@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
@_FEW
def test_fields_of_wrong_types_and_unknown_ones_are_a_frame_error(
    kind: type, data: st.DataObject
) -> None:
    names = st.sampled_from([*hints_of(kind), "unknown"])
    body = data.draw(st.dictionaries(names, _JSON, max_size=len(hints_of(kind))))
    payload = json.dumps({"type": kind.__name__} | body).encode()
    with suppress(frames.FrameError):
        assert type(frames.decode(payload, {kind.__name__: kind})) is kind


_BOUNDED = [
    pytest.param(kind, name, value, kept, id=f"{kind.__name__}.{name}-{number}")
    for kind in MESSAGES
    for name, hint in hints_of(kind).items()
    for bound in (shape_of(hint).bound,)
    if bound is not None and not shape_of(hint).items
    for number, (value, kept) in enumerate(samples_at_bounds(bound))
]


def _through_protobuf(record: object) -> object:
    """Return a record after its message, an order's with what stands beside it."""
    if isinstance(record, NodeOrder):
        order: Any = record
        wire = fleet_pb2.Order.FromString(order_to_wire(order, term=3).SerializeToString())
        return order_from_wire(wire, order.node)
    message = MESSAGES[type(record)]
    return from_wire(type(record), message.FromString(to_wire(record, message).SerializeToString()))


def _through_frame(record: object) -> object:
    body = frames.encode(record)[frames.HEADER_BYTES :]
    return frames.decode(body, {type(record).__name__: type(record)})


_WAYS = pytest.mark.parametrize("way", [_through_protobuf, _through_frame])


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
@given(data=st.data())
@_FEW
def test_every_record_survives_protobuf_frame_and_journal(kind: type, data: st.DataObject) -> None:
    record: Any = data.draw(records(kind))
    assert _through_protobuf(record) == record
    assert _through_frame(record) == record
    assert msgspec.json.decode(msgspec.json.encode(record), type=kind) == record


@_WAYS
@pytest.mark.parametrize(("kind", "name", "value", "kept"), _BOUNDED)
def test_a_field_is_taken_at_its_bounds_and_refused_beyond_with_its_name(
    way: Callable[[object], object], kind: type, name: str, value: object, kept: bool
) -> None:
    record, problem = replace(plain(kind), **{name: value}), ""
    try:
        assert getattr(way(record), name) == value
    except (WireError, frames.FrameError) as error:
        problem = str(error)
    # What is within its bounds may still not go with the other fields.
    assert problem.startswith(f"{kind.__name__}.{name}: ") is not kept, problem


def _listed() -> Iterator[tuple[Callable[[object], object], type, str]]:
    for kind in MESSAGES:
        for name, hint in hints_of(kind).items():
            bound = shape_of(hint).list_bound
            # Longer lists are asked by the same statement, and take a minute.
            for way, most in ((_through_protobuf, 100_000), (_through_frame, 1000)):
                if isinstance(bound, Items) and bound.most <= most:
                    yield way, kind, name


@pytest.mark.parametrize(("way", "kind", "name"), list(_listed()))
def test_a_list_is_taken_up_to_its_bound_and_no_longer(
    way: Callable[[object], object], kind: type, name: str
) -> None:
    shape = shape_of(hints_of(kind)[name])
    assert isinstance(shape.list_bound, Items)
    item, most = plain_one(shape.kind, shape.bound), shape.list_bound.most
    with suppress(WireError, frames.FrameError):
        assert len(getattr(way(replace(plain(kind), **{name: (item,) * most})), name)) == most
    with pytest.raises(
        (WireError, frames.FrameError), match=f"{kind.__name__}.{name}: {most + 1} items"
    ):
        way(replace(plain(kind), **{name: (item,) * (most + 1)}))


def test_an_item_beyond_its_bounds_is_named_by_its_number() -> None:
    told = replace(plain(VaultDirective), persist_steps=(1, 10**18, 2))
    with pytest.raises(WireError, match=r"^VaultDirective\.persist_steps\[1\]: 10{18} is not from"):
        _through_protobuf(told)
    with pytest.raises(frames.FrameError, match=r"^VaultDirective\.persist_steps\[1\]: 10{18} is"):
        _through_frame(told)


def test_words_for_people_are_cut_and_not_refused() -> None:
    told = replace(_EXITED, last_line="x" * 501, kind="y" * 99)
    found = report_of(record_of(told))
    assert found == replace(_EXITED, last_line="x" * 500, kind="y" * 40)
    wire = fleet_pb2.RankExited(generation=1, last_line="x" * 501)
    assert from_wire(RankExited, wire).last_line == "x" * 500


def test_a_step_that_was_not_told_is_none_and_step_0_is_a_step() -> None:
    for step in (None, 0):
        assert report_of(record_of(replace(_EXITED, step=step))) == replace(_EXITED, step=step)


@pytest.mark.parametrize(
    ("wire", "sentence"),
    [
        (fleet_pb2.Record(sequence=4), "record 4 has no body that this version knows"),
        (
            fleet_pb2.Record(rank_exited=fleet_pb2.RankExited(rank=2**32 - 1)),
            "RankExited.rank: 4294967295 is not from 0 to 199999",
        ),
        (
            fleet_pb2.Record(phase_reached=fleet_pb2.PhaseReached(generation=1)),
            "PhaseReached.phase: 0 is none of started, attached, restored",
        ),
        (
            fleet_pb2.Record(finding_raised=fleet_pb2.FindingRaised()),
            "FindingRaised.finding: is missing",
        ),
        (
            fleet_pb2.Record(
                steps_completed=fleet_pb2.StepsCompleted(end_boot_ns=[1, 2], stall_ns=[1])
            ),
            "StepsCompleted: 2 steps with 1 stalls",
        ),
        (
            fleet_pb2.Record(
                rollback_asked=fleet_pb2.RollbackAsked(skip=fleet_pb2.DataRange(first=2, last=1))
            ),
            "RollbackAsked.skip: data 2 to 1 is no range: name its first batch first",
        ),
    ],
)
def test_a_report_that_cannot_be_used_is_refused_with_a_sentence(
    wire: fleet_pb2.Record, sentence: str
) -> None:
    with pytest.raises(WireError) as refused:
        report_of(wire)
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"nodes_min": 0}, "--nnodes"),
        ({"nodes_max": 2**31}, "--nnodes"),
        ({"nodes_min": 5}, "--nnodes"),
        ({"processes_per_node": 0}, "--nproc-per-node"),
        ({"restarts_max": 2**31}, "--max-restarts"),
        ({"replica_nodes": 3}, "--nodes-per-replica"),
    ],
)
def test_a_request_that_no_cluster_can_meet_names_the_option_to_change(
    change: dict[str, Any], option: str
) -> None:
    with pytest.raises(WireError, match=option):
        report_of(record_of(replace(_JOINED, **change)))
    body = frames.encode(replace(_JOINED, **change))[frames.HEADER_BYTES :]
    with pytest.raises(frames.FrameError, match=option):
        frames.decode(body, {"LauncherJoined": LauncherJoined})


def test_what_no_message_can_hold_is_a_wire_error() -> None:
    changes: list[dict[str, Any]] = [{"rank": -1}, {"generation": 2**64}, {"last_line": 5}]
    for change in changes:
        with pytest.raises(WireError):
            to_wire(replace(_EXITED, **change), fleet_pb2.RankExited)


def test_a_record_needs_all_that_has_no_default_also_in_a_frame() -> None:
    needed = [field.name for field in fields(_EXITED) if field.default is MISSING]
    for name in needed:
        body = json.loads(frames.encode(_EXITED)[frames.HEADER_BYTES :])
        del body[name]
        with pytest.raises(frames.FrameError, match=name):
            frames.decode(json.dumps(body).encode(), {"RankExited": RankExited})


def test_nested_records_name_the_path_to_what_is_wrong() -> None:
    told = RollbackAsked(
        generation=1, rank=0, step=5, reason="nan", at_boot_ns=1, skip=DataRange(10**18, 1)
    )
    with pytest.raises(WireError, match=r"^RollbackAsked\.skip\.first: 10{18} is not from 0 to "):
        report_of(record_of(told))


@dataclass(frozen=True, slots=True)
class _Other:
    generation: Annotated[int, Integer(0, 9)]
    reason: Annotated[str, Text(3)]
    by_user: bool


def test_a_codec_follows_the_record_that_it_is_compiled_for() -> None:
    wire = fleet_pb2.LauncherLeft(reason="exited", by_user=True)
    with pytest.raises(TypeError, match="no field 'generation'"):
        from_wire(_Other, wire)


def test_all_phases_and_times_travel() -> None:
    for phase in Phase:
        assert report_of(record_of(told := PhaseReached(1, phase, 2))) == told
    steps = StepsCompleted(generation=1, first_step=5, end_boot_ns=(7, 8), stall_ns=(0, 1))
    assert report_of(record_of(steps)) == steps
    assert FindingRaised in _KINDS


@pytest.mark.parametrize("job", ["", "../etc", "x" * 201, "a b"])
def test_what_no_job_may_be_called_is_refused_with_what_it_may(job: str) -> None:
    with pytest.raises(WireError, match=r"^Record\.job: .*a name of 1 to 200 letters"):
        job_of(fleet_pb2.Record(job=job))
    assert not is_job_name(job)


def test_what_stands_beside_an_order_is_held_to_its_bounds_too() -> None:
    with pytest.raises(WireError, match=r"^RunCheck\.id: '' is not an id"):
        order_from_wire(fleet_pb2.Order(run_check=fleet_pb2.RunCheck()))
    wire = fleet_pb2.Order(order_id="1", reason="x" * 5000, run_check=fleet_pb2.RunCheck())
    assert len(order_from_wire(wire).reason) == 4096


def test_what_no_message_can_hold_is_named_with_its_field_and_its_bound() -> None:
    storage = Storage(path="/x", every_steps=-1)
    with pytest.raises(WireError, match=r"^LauncherJoined\.storage\.every_steps: -1 is not from 0"):
        record_of(replace(_JOINED, storage=storage))
