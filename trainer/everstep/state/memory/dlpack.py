"""Arrays that other libraries hand over by DLPack (JAX, Paddle), read without any of them."""

import ctypes
import importlib
import math
from typing import Protocol, cast

from everstep.copy_engine.views import ShardView, StateError

# dlpack.h: kDLCPU and kDLCUDAHost (pinned host memory).
_HOST_DEVICES = frozenset({1, 3})
# dlpack.h: kDLCUDA, kDLROCM and kDLCUDAManaged, which torch opens as its own.
_TORCH_DEVICES = frozenset({2, 10, 13})
# dlpack.h: DLDataTypeCode and bits; lanes are always 1.
_FORMATS = {
    (0, 8): "I8",
    (0, 16): "I16",
    (0, 32): "I32",
    (0, 64): "I64",
    (1, 8): "U8",
    (1, 16): "U16",
    (1, 32): "U32",
    (1, 64): "U64",
    (2, 16): "F16",
    (2, 32): "F32",
    (2, 64): "F64",
    (4, 16): "BF16",
    (5, 64): "C64",
    (6, 8): "BOOL",
    (10, 8): "F8_E4M3",
    (12, 8): "F8_E5M2",
}
_READ_ONLY = 1
# What to do about an array that is not read as it is.
_AS_NUMPY = (
    "; name an object instead whose state_dict() returns it as an array of numpy, and whose"
    " load_state_dict() takes that back"
)


class _Tensor(ctypes.Structure):
    """DLTensor, with DLDevice and DLDataType spread out."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned; the unversioned one begins with the tensor itself."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class _Exporter(Protocol):
    def __dlpack__(self, **options: object) -> object: ...


def dlpack_view(name: str, array: object, *, writable: bool = True) -> ShardView:
    """Return the memory of a DLPack array. Raises StateError."""
    # Paddle exports no parameter, only what it is without its gradient: the same memory.
    detach = getattr(array, "detach", None)
    capsule = _capsule(name, cast(_Exporter, detach() if callable(detach) else array))
    tensor, read_only = _tensor(name, capsule)
    if read_only and writable:
        raise StateError(
            f"shard {name!r} is read-only, and cannot be restored in place; keep it as a copy that"
            " may be written"
        )
    if tensor.device_type not in _HOST_DEVICES:
        if not writable and tensor.device_type in _TORCH_DEVICES:
            return _view_by_torch(name, array)
        raise StateError(f"{_unreadable(name)}{_AS_NUMPY}")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    count = math.prod(shape)
    if count and not _is_dense(tensor, shape):
        raise StateError(
            f"shard {name!r} must be contiguous to be restored in place; keep it as a contiguous"
            " copy: array.contiguous(), or what its library has for that"
        )
    word = _FORMATS.get((tensor.code, tensor.bits * tensor.lanes)) or (
        f"dlpack-{tensor.code}-{tensor.bits}-{tensor.lanes}"
    )
    size = count * (-(-tensor.bits * tensor.lanes // 8))
    address = (tensor.data or 0) + tensor.byte_offset if size else 0
    # The capsule owns the array until it is collected: it was not marked as used.
    return ShardView(name, word, shape, size, address, capsule)


def _unreadable(name: str) -> str:
    return f"shard {name!r} is on a device that only its library can read"


def _view_by_torch(name: str, array: object) -> ShardView:
    """Return memory on a device as torch sees it. Raises StateError."""
    try:
        torch = importlib.import_module("torch")
        found = torch.from_dlpack(array)
    except (ImportError, BufferError, RuntimeError, TypeError, ValueError, AssertionError) as error:
        raise StateError(f"{_unreadable(name)}, and torch cannot: {error}{_AS_NUMPY}") from error
    from everstep.state.memory.tensors import dense, tensor_view

    return tensor_view(name, dense(name, found))


def _is_dense(tensor: _Tensor, shape: tuple[int, ...]) -> bool:
    if not tensor.strides:  # DLPack before 1.2: row-major
        return True
    step = 1
    for axis in reversed(range(tensor.ndim)):
        if shape[axis] != 1 and tensor.strides[axis] != step:
            return False
        step *= shape[axis]
    return True


def _capsule(name: str, array: _Exporter) -> object:
    try:
        return array.__dlpack__(max_version=(1, 0))
    except TypeError:  # an exporter from before DLPack 1.0
        pass
    except (BufferError, RuntimeError, ValueError) as error:
        raise StateError(f"{_no_tensor(name)}: {error}{_AS_NUMPY}") from error
    try:
        return array.__dlpack__()
    except (TypeError, BufferError, RuntimeError, ValueError) as error:
        raise StateError(f"{_no_tensor(name)}: {error}{_AS_NUMPY}") from error


def _no_tensor(name: str) -> str:
    return f"shard {name!r} gives no DLPack tensor"


def _tensor(name: str, capsule: object) -> tuple[_Tensor, bool]:
    """Return the tensor, and whether it is read-only."""
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != 1:
            raise StateError(
                f"shard {name!r} is DLPack {versioned.major}, and 1 is understood{_AS_NUMPY}"
            )
        return versioned.tensor, bool(versioned.flags & _READ_ONLY)
    if not _is_valid(capsule, b"dltensor"):
        raise StateError(f"{_no_tensor(name)}{_AS_NUMPY}")
    return _Tensor.from_address(_pointer(capsule, b"dltensor")), False


def _is_valid(capsule: object, kind: bytes) -> bool:
    call = ctypes.pythonapi.PyCapsule_IsValid
    call.argtypes, call.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
    return bool(call(capsule, kind))


def _pointer(capsule: object, kind: bytes) -> int:
    call = ctypes.pythonapi.PyCapsule_GetPointer
    call.argtypes, call.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    return int(call(capsule, kind) or 0)
