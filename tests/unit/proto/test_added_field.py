"""A fact that grows a field is two lines: one in its record, one in its message."""

from dataclasses import dataclass, fields, replace

import msgspec
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from everstep_common import frames, reports
from everstep_common import quantities as q
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError, from_wire, to_wire


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExited(reports.RankExited):
    """The record with one more line."""

    waited_ns: q.DurationNs | None = None


def _message() -> type[Message]:
    """The message with one more line."""
    file = FileDescriptorProto()
    fleet_pb2.DESCRIPTOR.CopyToProto(file)
    (body,) = (one for one in file.message_type if one.name == "RankExited")
    body.oneof_decl.add(name="_waited_ns")
    body.field.add(
        name="waited_ns",
        number=99,
        type=FieldDescriptorProto.TYPE_INT64,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
        proto3_optional=True,
        oneof_index=len(body.oneof_decl) - 1,
    )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found: type[Message] = GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.RankExited"))
    return found


_MESSAGE = _message()
_EXITED = RankExited(
    generation=3, rank=7, exit_code=1, signal=0, last_line="boom", waited_ns=5_000_000_000
)


@pytest.mark.parametrize("waited_ns", [None, 0, 5_000_000_000])
def test_a_new_field_travels_by_frame_protobuf_and_journal(waited_ns: int | None) -> None:
    told = replace(_EXITED, waited_ns=waited_ns)
    assert {one.name for one in fields(told)} == set(_MESSAGE.DESCRIPTOR.fields_by_name)
    wire = _MESSAGE.FromString(to_wire(told, _MESSAGE).SerializeToString())
    assert from_wire(RankExited, wire) == told
    body = frames.encode(told)[frames.HEADER_BYTES :]
    assert frames.decode(body, {"RankExited": RankExited}) == told
    assert msgspec.json.decode(msgspec.json.encode(told), type=RankExited) == told


def test_a_field_that_its_message_does_not_have_is_refused_with_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"RankExited has no field 'waited_ns' .* `make proto`"):
        to_wire(_EXITED, fleet_pb2.RankExited)


def test_its_bounds_hold_wherever_it_is_read() -> None:
    told = replace(_EXITED, waited_ns=-1)
    with pytest.raises(WireError, match=r"^RankExited\.waited_ns: -1 is not from 0 to "):
        from_wire(RankExited, to_wire(told, _MESSAGE))
    body = frames.encode(told)[frames.HEADER_BYTES :]
    with pytest.raises(frames.FrameError, match="waited_ns"):
        frames.decode(body, {"RankExited": RankExited})


def test_what_was_journaled_before_the_field_came_is_read_and_a_frame_without_it_too() -> None:
    before = reports.RankExited(generation=3, rank=7, exit_code=1, signal=0, last_line="boom")
    row = msgspec.json.encode(before)
    assert msgspec.json.decode(row, type=RankExited) == replace(_EXITED, waited_ns=None)
    wire = _MESSAGE.FromString(to_wire(before, fleet_pb2.RankExited).SerializeToString())
    assert from_wire(RankExited, wire) == replace(_EXITED, waited_ns=None)
