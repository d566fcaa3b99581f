"""The training state as bytes, and copies of it."""

import ctypes

import numpy as np
import pytest

from everstep.memory import THREADED_BYTES, Copier, Copy
from everstep.state import ALIGNMENT_BYTES, StateError, offsets, views


def test_a_shard_is_described_by_its_own_format_and_shape() -> None:
    array = np.zeros((3, 5), dtype=">f4")
    (view,) = views({"a": array})
    assert (view.name, view.format, view.shape, view.size_bytes) == ("a", ">f", (3, 5), 60)
    assert view.address == array.ctypes.data


def test_a_callable_is_asked_for_its_array_each_time() -> None:
    arrays = [np.zeros(1), np.zeros(2)]
    state = {"a": lambda: arrays.pop()}
    assert [views(state)[0].size_bytes, views(state)[0].size_bytes] == [16, 8]


@pytest.mark.parametrize(
    ("shard", "words"),
    [
        (3.0, "has no buffer"),
        (b"constant", "writable and C-contiguous"),
        (np.zeros((4, 4)).T[1:], "writable and C-contiguous"),
    ],
)
def test_what_cannot_be_restored_in_place_is_named(shard: object, words: str) -> None:
    with pytest.raises(StateError, match=f"shard 'w' .*{words}"):
        views({"w": shard})


def test_entries_are_aligned_and_do_not_overlap() -> None:
    shards = views(
        {"a": bytearray(1), "b": np.zeros(0), "c": bytearray(5000), "d": bytearray(4096)}
    )
    begins, size = offsets(shards)
    assert begins == (0, 4096, 4096, 12288)
    assert size == 16384
    assert offsets(()) == ((), ALIGNMENT_BYTES)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", [0, 1, 5000, THREADED_BYTES + 12345])
def test_every_byte_is_copied(threads: int, size: int) -> None:
    source = np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)
    target = (ctypes.c_ubyte * (size + 1))()
    target[size] = 77
    Copier(threads).copy([Copy(ctypes.addressof(target), source.ctypes.data, size)])
    assert bytes(target) == source.tobytes() + b"\x4d"
