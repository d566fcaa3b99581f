"""Whatever a slot held before, there are zeros between the shards."""

import ctypes

from hypothesis import given
from hypothesis import strategies as st

from everstep.saving.mapping import Paddings
from everstep_common.rank_messages import Entry

_SLOT_BYTES = 120
# Shards of up to 9 bytes, up to 4 bytes apart.
_LAYOUTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 4)), max_size=9)


def entries(layout: list[tuple[int, int]]) -> tuple[Entry, ...]:
    found, at = [], 0
    for number, (size, apart) in enumerate(layout):
        found.append(Entry(str(number), at, size))
        at += size + apart
    return tuple(found)


def copy(memory: "ctypes.Array[ctypes.c_ubyte]", shards: tuple[Entry, ...], parts: int) -> None:
    """Copy the first of the shards: a copy may be cut short."""
    for shard in shards[:parts]:
        ctypes.memset(ctypes.addressof(memory) + shard.offset_bytes, 0xFF, shard.size_bytes)


def expected(shards: tuple[Entry, ...]) -> bytes:
    content = bytearray(_SLOT_BYTES)
    for shard in shards:
        end = shard.offset_bytes + shard.size_bytes
        content[shard.offset_bytes : end] = b"\xff" * shard.size_bytes
    return bytes(content)


@given(st.lists(st.tuples(_LAYOUTS, st.integers(0, 9)), max_size=6), _LAYOUTS)
def test_gaps_are_zero_after_any_copies_before(
    before: list[tuple[list[tuple[int, int]], int]], last: list[tuple[int, int]]
) -> None:
    # What was there before the first copy is not known either.
    memory = (ctypes.c_ubyte * _SLOT_BYTES)(*[0xEE] * _SLOT_BYTES)
    paddings, address = Paddings(), ctypes.addressof(memory)
    for layout, parts in before:
        paddings.clear(address, entries(layout))
        copy(memory, entries(layout), parts)
    shards = entries(last)
    paddings.clear(address, shards)
    copy(memory, shards, len(shards))
    end = max((shard.offset_bytes + shard.size_bytes for shard in shards), default=0)
    assert bytes(memory)[:end] == expected(shards)[:end]


def test_where_nothing_has_moved_nothing_is_touched() -> None:
    memory = (ctypes.c_ubyte * _SLOT_BYTES)()
    paddings, shards = Paddings(), entries([(3, 2), (4, 1), (1, 0)])
    paddings.clear(ctypes.addressof(memory), shards)
    memory[4] = 9
    paddings.clear(ctypes.addressof(memory), tuple(shards))
    # The first gap is where it was, the second has moved.
    paddings.clear(ctypes.addressof(memory), entries([(3, 2), (3, 2), (1, 0)]))
    assert memory[4] == 9
