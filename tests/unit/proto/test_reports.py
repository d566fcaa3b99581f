"""Each report or order and its message in fleet.proto are the same fact, field by field."""

import typing
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from everstep_common.bounds import Digest, Integer, Items
from everstep_common.hints import hints_of
from everstep_common.orders import (
    NodeOrder,
    Order,
)
from everstep_common.reports import (
    JobReport,
    Report,
)
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import shape_of
from everstep_proto.reports import BODIES
from fakes.report_values import BESIDE_THEM, MESSAGES

_KINDS: tuple[type, ...] = typing.get_args(Report)
_ORDERS: tuple[type, ...] = typing.get_args(Order)
# Fields that stand beside the message of a record, for all of its family.
_BESIDE = {kind: {field.name for field in fields(NodeOrder)} for kind in _ORDERS}
_INTEGERS = {
    FieldDescriptor.TYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.TYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: (0, 2**64 - 1),
}
_OTHERS = {
    bool: FieldDescriptor.TYPE_BOOL,
    str: FieldDescriptor.TYPE_STRING,
    bytes: FieldDescriptor.TYPE_BYTES,
}


def _hints(kind: type) -> dict[str, object]:
    """Return the hints of the fields that are in a record's message."""
    beside = _BESIDE.get(kind, set())
    return {name: hint for name, hint in hints_of(kind).items() if name not in beside}


_FIELDS = [
    pytest.param(kind, message, name, id=f"{kind.__name__}.{name}")
    for kind, message in MESSAGES.items()
    for name in _hints(kind)
]


def test_each_body_of_a_record_is_a_report_and_each_report_a_body() -> None:
    bodies = {field.name for field in fleet_pb2.Record.DESCRIPTOR.oneofs_by_name["body"].fields}
    assert bodies == set(BODIES)
    assert set(BODIES.values()) == set(_KINDS)


def test_what_an_agent_and_the_controller_say_is_a_record_but_for_the_streams_own_words() -> None:
    told = {kind.__name__ for kind in BESIDE_THEM} | {"Record", "Order", "Welcome", "Ack"}
    for stream in (fleet_pb2.AgentMessage, fleet_pb2.ControllerMessage):
        bodies = stream.DESCRIPTOR.oneofs_by_name["body"].fields
        assert {field.message_type.name for field in bodies if field.message_type} <= told


def test_each_body_of_an_order_is_an_order_and_each_order_a_body() -> None:
    bodies = fleet_pb2.Order.DESCRIPTOR.oneofs_by_name["body"].fields
    assert {field.message_type.name for field in bodies if field.message_type} == {
        kind.__name__ for kind in _ORDERS
    }


@pytest.mark.parametrize(("kind", "message"), MESSAGES.items(), ids=lambda one: one.__name__)
def test_a_record_has_the_name_and_the_fields_of_its_message(
    kind: type, message: type[Message]
) -> None:
    assert kind.__name__ == message.DESCRIPTOR.name
    assert set(_hints(kind)) == set(message.DESCRIPTOR.fields_by_name)


@pytest.mark.parametrize(("kind", "message", "name"), _FIELDS)
def test_a_field_has_the_type_and_presence_of_its_message(
    kind: type, message: type[Message], name: str
) -> None:
    shape = shape_of(hints_of(kind)[name])
    field: Any = message.DESCRIPTOR.fields_by_name[name]
    repeated = shape.items or typing.get_origin(shape.kind) is dict
    assert field.is_repeated == repeated
    if not repeated:
        assert field.has_presence == (shape.optional or is_dataclass(shape.kind))
    if is_dataclass(shape.kind):
        assert field.message_type.name == typing.cast(Any, shape.kind).__name__
    elif isinstance(shape.kind, type) and issubclass(shape.kind, Enum):
        assert field.enum_type.name == shape.kind.__name__
        assert len(field.enum_type.values) == len(shape.kind) + 1
    elif shape.kind is int:
        assert field.type in _INTEGERS
    elif isinstance(shape.bound, Digest):
        assert field.type == FieldDescriptor.TYPE_BYTES
    elif not repeated or shape.items:
        assert field.type == _OTHERS[shape.kind]


@pytest.mark.parametrize(("kind", "message", "name"), _FIELDS)
def test_the_bounds_of_a_field_are_within_those_of_its_message(
    kind: type, message: type[Message], name: str
) -> None:
    shape = shape_of(hints_of(kind)[name])
    field: Any = message.DESCRIPTOR.fields_by_name[name]
    if isinstance(shape.bound, Integer):
        low, high = _INTEGERS[field.type]
        assert low <= shape.bound.low <= shape.bound.high <= high
        assert shape.bound.unit == _unit_in(name)
    if shape.items:
        assert isinstance(shape.list_bound, Items)
    if shape.kind in (str, bytes, int):
        assert shape.bound is not None


def _unit_in(name: str) -> str:
    if name.endswith("_ns"):
        return "ns"
    return "bytes" if name.endswith("_bytes") else ""


def test_what_is_about_a_job_names_it_beside_the_report() -> None:
    for kind in typing.get_args(JobReport):
        assert "job" not in hints_of(kind)
