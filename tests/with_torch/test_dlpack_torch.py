"""An array on a device that another library hands over inside a state_dict() is read by torch.

No device is needed: the first capsule says that it is on one, the one that torch asks for does not.
"""

import ctypes

import numpy as np
import pytest

from everstep.copy_engine.views import StateError
from everstep.state.capture import capture_of
from everstep.state.memory.arrays import readable_view
from everstep.state.memory.dlpack import dlpack_view
from everstep.state.shards.parts import Place

# DLManagedTensorVersioned begins with 4 words of 8 bytes; the tensor with its data's address.
_DEVICE_TYPE_AT = 4 * 8 + 8
_CUDA = 2
_TRAINIUM = 99


class OnDevice:
    """Numbers whose first capsule names a device."""

    def __init__(self, array: np.ndarray, device_type: int = _CUDA) -> None:
        self.array = array
        self._device_type = device_type
        self._asked = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: object) -> object:
        capsule = self.array.__dlpack__(max_version=(1, 0))
        self._asked += 1
        if self._asked == 1:
            call = ctypes.pythonapi.PyCapsule_GetPointer
            call.argtypes, call.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
            address = call(capsule, b"dltensor_versioned")
            ctypes.c_int32.from_address(address + _DEVICE_TYPE_AT).value = self._device_type
        return capsule


def test_torch_opens_what_is_on_its_kind_of_device() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    view = readable_view("x", OnDevice(array))
    assert (view.format, view.shape, view.size_bytes) == ("F32", (2, 3), 24)
    assert ctypes.string_at(view.address, view.size_bytes) == array.tobytes()


@pytest.mark.parametrize("writable", [True, False])
def test_another_device_is_refused(writable: bool) -> None:
    with pytest.raises(StateError, match="'x' is on a device that only its library can read"):
        dlpack_view("x", OnDevice(np.ones(3), _TRAINIUM), writable=writable)


def test_a_plain_array_on_a_device_is_refused_as_before() -> None:
    with pytest.raises(StateError, match="'w' is on a device"):
        capture_of({"w": OnDevice(np.ones(3))}, Place()).views()
