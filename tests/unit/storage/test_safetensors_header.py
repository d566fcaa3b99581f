"""The head of a safetensors file, read back by the real library."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st
from safetensors import deserialize

from everstep_agent.storage.formats.safetensors_header import in_file_order, lay_out_file
from everstep_common.rank_messages import Entry

_SIZES = {"F64": 8, "F32": 4, "BF16": 2, "I8": 1, "BOOL": 1, "U16": 2}


def _file(entries: list[Entry], copy: bytes) -> bytes:
    layout = lay_out_file(entries, {"everstep": "test"})
    content = layout.head + b"".join(
        copy[piece.copy_offset : piece.copy_offset + piece.size_bytes] for piece in layout.pieces
    )
    assert len(content) == layout.size_bytes
    return content


def _read(content: bytes) -> list[tuple[str, dict[str, object]]]:
    return list(deserialize(content))  # type: ignore[no-untyped-call]  # it has no types


def _bytes(tensor: dict[str, object]) -> bytes:
    data = tensor["data"]
    assert isinstance(data, bytes | bytearray)
    return bytes(data)


def _metadata(content: bytes) -> dict[str, str]:
    length = int.from_bytes(content[:8], "little")
    metadata: dict[str, str] = json.loads(content[8 : 8 + length])["__metadata__"]
    return metadata


@st.composite
def _states(draw: st.DrawFn) -> list[Entry]:
    entries: list[Entry] = []
    at = 0
    for number in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from([*_SIZES, "complex256"]))
        shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
        size = math.prod(shape) * _SIZES.get(kind, 7)
        entries.append(Entry(f"shard {number}", at, size, kind, shape))
        at += size + draw(st.integers(0, 9))
    return entries


@given(_states())
def test_the_library_reads_every_shard_back(entries: list[Entry]) -> None:
    end = max(entry.offset_bytes + entry.size_bytes for entry in entries)
    copy = bytes(index % 251 for index in range(end))
    found = dict(_read(_file(entries, copy)))
    for entry in entries:
        tensor = found.pop(entry.name)
        assert _bytes(tensor) == (copy[entry.offset_bytes : entry.offset_bytes + entry.size_bytes])
        if entry.format in _SIZES:
            assert (tensor["dtype"], tensor["shape"]) == (entry.format, [*entry.shape])
        else:
            assert (tensor["dtype"], tensor["shape"]) == ("U8", [entry.size_bytes])
    assert not found


def test_every_tensor_is_aligned_to_its_own_type() -> None:
    entries = [Entry("odd", 0, 3, "U8", (3,)), Entry("wide", 8, 16, "F64", (2,))]
    assert [entry.name for entry in in_file_order(entries)] == ["wide", "odd"]
    assert len(lay_out_file(entries, {}).head) % 4096 == 0


def test_a_part_has_the_name_of_its_tensor_and_says_where_it_begins() -> None:
    part = Entry("w[2:4,0:3]", 0, 24, "F32", (2, 3), "w", (2, 0), (4, 3))
    whole = Entry("b", 24, 4, "F32", (1,))
    content = _file([part, whole], bytes(28))
    assert {name for name, _ in _read(content)} == {"w", "b"}
    assert json.loads(_metadata(content)["DCP_SHARDING_INFO"]) == {
        "w": {"saved_offsets": [2, 0]},
        "b": {"saved_offsets": [0]},
    }


def test_two_parts_of_one_tensor_in_one_file_are_both_there() -> None:
    parts = [
        Entry("w[0:1]", 0, 4, "F32", (1,), "w", (0,), (4,)),
        Entry("w[3:4]", 4, 4, "F32", (1,), "w", (3,), (4,)),
    ]
    assert {name for name, _ in _read(_file(parts, bytes(8)))} == {"w", "w[3:4]"}


def test_a_shape_that_does_not_match_the_size_is_kept_as_bytes() -> None:
    ((_, tensor),) = _read(_file([Entry("w", 0, 5, "F32", (2,))], b"12345"))
    assert (tensor["dtype"], _bytes(tensor)) == ("U8", b"12345")


def test_a_shard_may_have_the_name_that_the_format_keeps_for_itself() -> None:
    content = _file([Entry("__metadata__", 0, 1, "U8", (1,))], b"x")
    assert [name for name, _ in _read(content)] == ["shard/__metadata__"]
