"""The .proto files: stubs are what they generate, everything is explained, units are in names."""

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor

from everstep_proto import regenerate
from everstep_proto.generated import admin_pb2, fleet_pb2, nvhcd_pb2

PROTO = regenerate.PROTO_FOLDER
FILES: tuple[FileDescriptor, ...] = (
    fleet_pb2.DESCRIPTOR,
    admin_pb2.DESCRIPTOR,
    nvhcd_pb2.DESCRIPTOR,
)
SOURCES = [PROTO / "fleet.proto", PROTO / "admin.proto", PROTO / "nvhcd.proto"]

_DECLARATION = re.compile(r"^\s*(message|enum|service|rpc|[\w.]+(?: [\w.]+)* = \d+;|repeated )")
# A number is a count, an index, an id, or a quantity: a quantity says its unit.
_QUANTITY = re.compile(
    r"time|duration|interval|offset|uncertainty|grace|stall|since|onset|size|memory|speed|free$|wall"
)
_UNIT = re.compile(r"_(ns|s|bytes|bits_per_s)$|^(since|started|onset|over)_ns$|^ettr_(time|work)$")
# Counts that share a word with a quantity.
_COUNTS = {"world_size"}
_NUMBERS = {
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_INT64,
    FieldDescriptor.TYPE_UINT64,
    FieldDescriptor.TYPE_INT32,
    FieldDescriptor.TYPE_UINT32,
}


def _messages() -> list[Descriptor]:
    return [message for file in FILES for message in file.message_types_by_name.values()]


def test_regenerating_the_stubs_changes_nothing(tmp_path: Path) -> None:
    into = tmp_path / "everstep_proto" / "generated"
    into.mkdir(parents=True)
    regenerate.regenerate(into)
    made = {path.name: path.read_text() for path in into.iterdir()}
    committed = {
        path.name: path.read_text()
        for path in regenerate.GENERATED.iterdir()
        if path.is_file() and path.name != "__init__.py"
    }
    assert made == committed


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_every_message_field_and_call_has_a_comment(source: Path) -> None:
    lines = source.read_text().splitlines()
    bare = [
        f"{source.name}:{number}: {line.strip()}"
        for number, line in enumerate(lines, start=1)
        if _DECLARATION.match(line) and not lines[number - 2].lstrip().startswith("//")
    ]
    assert bare == []


def test_every_quantity_names_its_unit() -> None:
    unclear = [
        field.full_name
        for message in _messages()
        for field in message.fields
        if field.type in _NUMBERS
        and _QUANTITY.search(field.name)
        and not _UNIT.search(field.name)
        and field.name not in _COUNTS
    ]
    assert unclear == []


def test_every_enum_begins_with_a_value_that_means_not_set() -> None:
    enums = [enum for file in FILES for enum in file.enum_types_by_name.values()]
    assert enums
    assert all(enum.values_by_number[0].name.endswith("_UNSPECIFIED") for enum in enums)
