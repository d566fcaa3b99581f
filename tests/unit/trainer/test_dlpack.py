"""Arrays of libraries that offer nothing but DLPack; numpy plays them."""

import ctypes

import numpy as np
import pytest

from everstep.copy_engine.views import StateError
from everstep.state.capture import capture_of
from everstep.state.memory.dlpack import dlpack_view
from everstep.state.shards.parts import Place
from fakes.shard_store import ShardStore


class OnlyDlpack:
    """As JAX arrays and Paddle tensors are: no buffer protocol."""

    def __init__(self, array: np.ndarray, versioned: bool = True) -> None:
        self.array = array
        self._versioned = versioned

    def __dlpack__(self, **options: object) -> object:
        if options and not self._versioned:
            raise TypeError("max_version")
        return self.array.__dlpack__(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize(
    ("dtype", "word"),
    [
        ("f8", "F64"),
        ("f4", "F32"),
        ("f2", "F16"),
        ("i8", "I64"),
        ("u1", "U8"),
        ("?", "BOOL"),
        ("c8", "C64"),
    ],
)
def test_the_memory_is_the_arrays_own(dtype: str, word: str, versioned: bool) -> None:
    array = np.arange(24).astype(dtype).reshape(2, 3, 4)
    view = dlpack_view("x", OnlyDlpack(array, versioned))
    assert (view.format, view.shape, view.size_bytes) == (word, (2, 3, 4), array.nbytes)
    assert view.address == array.ctypes.data
    assert ctypes.string_at(view.address, view.size_bytes) == array.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 5), (5, 1)])
def test_odd_shapes_are_read(shape: tuple[int, ...]) -> None:
    array = np.ones(shape)
    view = dlpack_view("x", OnlyDlpack(array))
    assert (view.shape, view.size_bytes) == (shape, array.nbytes)


def test_an_offset_into_other_memory_is_followed() -> None:
    array = np.arange(10.0)[4:]
    assert dlpack_view("x", OnlyDlpack(array)).address == array.ctypes.data


def test_what_cannot_be_restored_in_place_is_named() -> None:
    with pytest.raises(StateError, match=r"'x' must be contiguous.*; keep it as a contiguous copy"):
        dlpack_view("x", OnlyDlpack(np.ones((4, 6)).T))
    constant = np.ones(3)
    constant.flags.writeable = False
    with pytest.raises(StateError, match=r"'x' is read-only.*; keep it as a copy"):
        dlpack_view("x", OnlyDlpack(constant))
    with pytest.raises(StateError, match=r"'x' gives no DLPack tensor: .*; name an object instead"):
        dlpack_view("x", OnlyDlpack(np.array([None])))


class Changed(OnlyDlpack):
    """An array with another word in what it exports."""

    def __init__(self, offset: int, value: int) -> None:
        super().__init__(np.ones(3))
        self._offset, self._value = offset, value

    def __dlpack__(self, **options: object) -> object:
        capsule = super().__dlpack__(**options)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
        address = pointer(capsule, b"dltensor_versioned") + self._offset
        ctypes.c_uint32.from_address(address).value = self._value
        return capsule


@pytest.mark.parametrize(
    ("offset", "value", "said"),
    [
        (0, 2, "'x' is DLPack 2, and 1 is understood"),
        # dlpack.h: DLDevice is behind version, context, deleter, flags and data; kDLMetal.
        (40, 8, "'x' is on a device that only its library can read"),
    ],
)
def test_what_cannot_be_read_is_named_with_what_to_hand_over_instead(
    offset: int, value: int, said: str
) -> None:
    with pytest.raises(StateError, match=f"{said}; name an object instead whose state_dict"):
        dlpack_view("x", Changed(offset, value))


def test_a_view_keeps_the_array_alive() -> None:
    view = dlpack_view("x", OnlyDlpack(np.full(1000, 7.0)))
    others = [np.zeros(1000) for _ in range(20)]
    assert ctypes.string_at(view.address, 8) == np.float64(7.0).tobytes()
    assert len(others) == 20


def test_a_plain_array_comes_back_in_place() -> None:
    array = np.arange(5.0)
    store = ShardStore()
    assert store.save(0, capture_of({"w": OnlyDlpack(array)}, Place())) == ("w",)
    array[:] = 0
    store.restore(0, capture_of({"w": OnlyDlpack(array)}, Place()))
    assert array.tolist() == [0, 1, 2, 3, 4]


def test_arrays_that_never_change_are_for_objects_only() -> None:
    immutable = type("ArrayImpl", (OnlyDlpack,), {"__module__": "jaxlib._jax"})
    weight = immutable(np.arange(3.0))
    with pytest.raises(StateError, match=r"'w' is immutable.*state_dict"):
        capture_of({"w": weight}, Place()).views()
    holder, store = Holder(weight), ShardStore()
    store.save(0, capture_of({"x": holder}, Place()))
    store.restore(0, capture_of({"x": holder}, Place()))
    assert isinstance(holder.weight, np.ndarray)
    assert holder.weight.tolist() == [0, 1, 2]


class Holder:
    def __init__(self, weight: object) -> None:
        self.weight = weight

    def state_dict(self) -> dict[str, object]:
        return {"w": self.weight}

    def load_state_dict(self, state: dict[str, object]) -> None:
        self.weight = state["w"]
