"""An array of any library as memory: the buffer protocol, DLPack, and torch's own tensors."""

import ctypes
import importlib
import sys
from dataclasses import replace

from everstep.copy_engine.views import ShardView, StateError
from everstep.state.memory.dlpack import dlpack_view
from everstep_common.printable import with_article

# struct's letter and the item's size, which for "l" and "L" depends on the platform.
_FORMATS = {
    ("d", 8): "F64",
    ("f", 4): "F32",
    ("e", 2): "F16",
    ("Zf", 8): "C64",
    ("?", 1): "BOOL",
    ("b", 1): "I8",
    ("B", 1): "U8",
    ("c", 1): "U8",
    ("h", 2): "I16",
    ("H", 2): "U16",
    ("i", 4): "I32",
    ("I", 4): "U32",
    ("l", 4): "I32",
    ("L", 4): "U32",
    ("l", 8): "I64",
    ("L", 8): "U64",
    ("q", 8): "I64",
    ("Q", 8): "U64",
    ("n", 8): "I64",
    ("N", 8): "U64",
}

# Libraries whose arrays never change, though DLPack would let them be written to.
_IMMUTABLE = frozenset({"jax", "jaxlib"})
IMMUTABLE = (
    "arrays of JAX never change, so they cannot be restored in place; hand over an object with"
    " state_dict() and load_state_dict(), as everstep.integrations.jax.Pytree"
)
_NUMPY_DTYPES = {
    "F64": "f8",
    "F32": "f4",
    "F16": "f2",
    "C64": "c8",
    "Zd": "c16",
    "BOOL": "?",
    "I8": "i1",
    "U8": "u1",
    "I16": "i2",
    "U16": "u2",
    "I32": "i4",
    "U32": "u4",
    "I64": "i8",
    "U64": "u8",
}


def array_view(name: str, array: object) -> ShardView:
    """Return an array's memory. Raises StateError when it cannot be saved and restored in place."""
    if is_tensor(array):
        from everstep.state.memory.tensors import (
            tensor_view,  # torch is there: the state has a tensor
        )

        return tensor_view(name, array)
    if is_immutable(array):
        raise StateError(f"shard {name!r} is immutable: {IMMUTABLE}")
    if _is_masked(array):
        raise StateError(
            f"shard {name!r} is a masked array, whose mask would be lost: name its data and its"
            " mask as two arrays"
        )
    if hasattr(array, "__dlpack__") and not _is_buffer(array):
        _refuse_opaque(name, array)
        return dlpack_view(name, array)
    return buffer_view(name, array)


def is_immutable(value: object) -> bool:
    """Return whether it is an array of a library whose arrays never change."""
    return type(value).__module__.partition(".")[0] in _IMMUTABLE


def _is_masked(value: object) -> bool:
    return any(kind.__module__.startswith("numpy.ma") for kind in type(value).__mro__)


def memory_of(array: object) -> object:
    """Return what stays equal while an array that is viewed keeps its memory; None: unknown.

    A view keeps a bytearray from growing. An array of numpy can be given other memory all the same.
    """
    if type(array) is bytearray:
        return len(array)
    kind = type(array)
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return getattr(array, "__array_interface__", None)
    return None


def is_tensor(value: object) -> bool:
    """Return whether it is a torch.Tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_dtensor(value: object) -> bool:
    """Return whether it is a torch DTensor, without importing torch's distributed tensors."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


def is_array(value: object) -> bool:
    """Return whether it is a numpy array or a DLPack array; scalars are none."""
    module = type(value).__module__.partition(".")[0]
    if module == "numpy":  # not its scalars; and a masked array is more than its memory
        return type(value).__name__ in ("ndarray", "memmap")
    return hasattr(value, "__dlpack__")


def readable_view(name: str, array: object) -> ShardView:
    """Return an array's memory, or a copy's where it is read-only or not in one piece.

    Raises StateError.
    """
    if is_tensor(array):
        from everstep.state.memory.tensors import (  # torch is there: the state has a tensor
            dense,
            tensor_view,
        )

        return tensor_view(name, dense(name, array))
    if hasattr(array, "__dlpack__") and not _is_buffer(array):
        _refuse_opaque(name, array)
        return dlpack_view(name, array, writable=False)
    try:
        return buffer_view(name, array)
    except StateError:
        if not _is_buffer(array):
            raise
        described = memoryview(array)  # type: ignore[arg-type]  # it is a buffer
        if _holds_references(described.format):
            raise
    copied = buffer_view(name, bytearray(described.tobytes()))
    return replace(copied, format=format_of(described), shape=tuple(described.shape or ()))


def _refuse_opaque(name: str, array: object) -> None:
    """Raise StateError for an array of numpy whose dtype no buffer can have: times, bfloat16."""
    if type(array).__module__.partition(".")[0] == "numpy":
        dtype = getattr(array, "dtype", None)
        raise StateError(
            f"shard {name!r} is of numpy's dtype {dtype}, which has no buffer; name its"
            " bytes instead, array.view('u1'), which is the same memory"
        )


def _is_buffer(array: object) -> bool:
    try:
        memoryview(array)  # type: ignore[arg-type]  # that is the question
    except (TypeError, ValueError, BufferError):
        return False
    return True


def buffer_view(name: str, buffer: object) -> ShardView:
    """Return the memory behind a buffer. Raises StateError when it cannot be restored in place."""
    try:
        described = memoryview(buffer)  # type: ignore[arg-type]  # not a buffer: TypeError, below
    except (TypeError, ValueError, BufferError) as error:
        raise StateError(
            f"shard {name!r} is {with_article(type(buffer).__name__)}, neither an array nor an"
            " object with state_dict() and load_state_dict()"
        ) from error
    if _holds_references(described.format):
        raise StateError(
            f"shard {name!r} is an array of Python objects, whose memory means nothing to another"
            " process; save numbers, or an object with state_dict() and load_state_dict()"
        )
    if described.readonly or not described.c_contiguous:
        how = "read-only" if described.readonly else "not C-contiguous"
        raise StateError(
            f"shard {name!r} is {how}, and cannot be restored in place; keep it as"
            " numpy.array(it, order='C')"
        )
    shape = tuple(described.shape or ())
    word = format_of(described)
    if described.nbytes == 0:
        return ShardView(name, word, shape, 0, 0, buffer)
    # from_buffer takes every format, also those that memoryview.cast does not know.
    memory = (ctypes.c_ubyte * described.nbytes).from_buffer(described)
    return ShardView(name, word, shape, described.nbytes, ctypes.addressof(memory), memory)


def _holds_references(layout: str) -> bool:
    """Return whether a buffer's layout has objects or pointers; in colons are names of fields."""
    return any(letter in "OP&X" for text in layout.split(":")[::2] for letter in text)


def new_array(word: str, shape: tuple[int, ...]) -> object | None:
    """Return a new numpy array of a shard's format; None: numpy has no such dtype."""
    dtype = _NUMPY_DTYPES.get(word)
    return None if dtype is None else importlib.import_module("numpy").empty(shape, dtype)


def is_writable(array: object) -> bool:
    """Return whether it is a numpy array that `copy_array` can fill, in whatever order it lies."""
    return bool(getattr(getattr(array, "flags", None), "writeable", False))


def copy_array(source: object, target: object) -> None:
    """Fill one numpy array from another."""
    importlib.import_module("numpy").copyto(target, source)


def has_dtype(word: str) -> bool:
    """Return whether `new_array` knows the format."""
    return word in _NUMPY_DTYPES


def format_of(described: memoryview) -> str:
    """Return the safetensors dtype; what safetensors has no word for keeps the buffer's own."""
    letter = described.format.lstrip("@=" + ("<" if sys.byteorder == "little" else ">!"))
    return _FORMATS.get((letter, described.itemsize), described.format)
