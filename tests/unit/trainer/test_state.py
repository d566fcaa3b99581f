"""The training state as bytes, and copies of it."""

import ctypes
from collections.abc import Collection

import numpy as np
import pytest

from everstep.copy_engine.memory import THREADED_BYTES, Copier, Copy
from everstep.copy_engine.views import ALIGNMENT_BYTES, ShardView, State, StateError, offsets
from everstep.state.capture import capture_of
from everstep.state.plain import PlainCapture
from everstep.state.shards.parts import Place


def views(state: State) -> tuple[ShardView, ...]:
    return PlainCapture(state).views()


def test_a_shard_is_described_by_its_own_format_and_shape() -> None:
    array = np.zeros((3, 5), dtype=">f4")
    (view,) = views({"a": array})
    assert (view.name, view.format, view.shape, view.size_bytes) == ("a", ">f", (3, 5), 60)
    assert view.address == array.ctypes.data


def test_the_views_of_a_step_are_those_of_the_step_before_while_memory_stays_where_it_is() -> None:
    state: dict[str, object] = {"a": np.zeros(4), "b": bytearray(8)}
    capture = PlainCapture(state)
    first = capture.views()
    assert capture.views() is first
    array = state["a"]
    assert isinstance(array, np.ndarray)
    array.resize((1000,), refcheck=False)
    moved = capture.views()
    assert (moved[0].size_bytes, moved[0].address) == (8000, array.ctypes.data)
    array.flags.writeable = False
    with pytest.raises(StateError, match="is read-only"):
        capture.views()
    array.flags.writeable = True
    state["b"] = bytearray(8)
    assert capture.views()[1].address != first[1].address
    state["c"] = bytearray(3)
    assert [view.name for view in capture.views()] == ["a", "b", "c"]


def test_a_callable_is_asked_for_its_array_each_time() -> None:
    arrays = [np.zeros(1), np.zeros(2)]
    state = {"a": lambda: arrays.pop()}
    assert [views(state)[0].size_bytes, views(state)[0].size_bytes] == [16, 8]


@pytest.mark.parametrize(
    ("shard", "words"),
    [
        (3.0, "neither an array nor"),
        (np.array([object()]), "array of Python objects"),
        (np.zeros(2, dtype=[("P", "i4"), ("b", "O")]), "array of Python objects"),
        (b"constant", "is read-only, .* numpy.array"),
        (np.zeros((4, 4)).T[1:], "is not C-contiguous, .* order='C'"),
        (np.ma.masked_less(np.arange(4.0), 2), "masked array, whose mask would be lost"),
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


def test_fields_of_a_record_may_have_any_name() -> None:
    (view,) = views({"w": np.zeros(2, dtype=[("OP", "i4"), ("X", "f8")])})
    assert view.size_bytes == 24


@pytest.mark.parametrize(
    ("state", "equal", "words"),
    [
        ([np.zeros(1)], (), "the state is a list; name its parts"),
        (None, (), "the state is a NoneType; name its parts"),
        ({1: np.zeros(1)}, (), "called 1; names are strings"),
        ({"w": np.zeros(1)}, "w", r"write \['w'\]"),
        ({"w\udc80": np.zeros(1)}, (), "cannot be written"),
        ({"": np.zeros(1)}, (), "cannot be written"),
    ],
)
def test_a_state_without_names_is_refused_at_once(
    state: State, equal: Collection[str], words: str
) -> None:
    with pytest.raises(StateError, match=words):
        capture_of(state, Place(), equal)
