"""torch tensors as memory. Only imported when the state has one."""

import ctypes
from typing import NamedTuple

import torch

from everstep.copy_engine.views import ShardView, StateError
from everstep_common.printable import with_article

# The dtypes of safetensors by torch's names; not every torch has all of them.
_WORDS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "complex64": "C64",
}
_DTYPES = {word: getattr(torch, name) for name, word in _WORDS.items() if hasattr(torch, name)}


def format_of(tensor: torch.Tensor) -> str:
    """Return the safetensors dtype, or torch's own name for what safetensors has no word for."""
    name = str(tensor.dtype).removeprefix("torch.")
    return _WORDS.get(name, name)


def dtype_of(word: str) -> torch.dtype | None:
    """Return the torch dtype of a shard's format; None: torch has none."""
    dtype = _DTYPES.get(word) or getattr(torch, word, None)
    return dtype if isinstance(dtype, torch.dtype) else None


def tensor_view(name: str, tensor: object) -> ShardView:
    """Return the memory of a tensor. Raises StateError when it has none, or not in one piece."""
    assert isinstance(tensor, torch.Tensor)
    refuse_without_memory(name, tensor)
    if not tensor.is_contiguous():
        raise StateError(
            f"tensor {name!r} must be contiguous to be restored in place; keep it as"
            " tensor.contiguous()"
        )
    size = tensor.numel() * tensor.element_size()
    return ShardView(
        name,
        format_of(tensor),
        tuple(tensor.shape),
        size,
        tensor.data_ptr() if size else 0,
        tensor,
        cuda=tensor.detach() if tensor.is_cuda and size else None,
    )


def dense(name: str, tensor: object) -> torch.Tensor:
    """Return the tensor's values in one piece, where they can be copied from: mostly itself."""
    assert isinstance(tensor, torch.Tensor)
    refuse_without_memory(name, tensor)
    found = tensor.detach()
    if not (found.is_cpu or found.is_cuda):
        found = found.cpu()
    return found.contiguous()


class TensorMemory(NamedTuple):
    """Identity of a tensor's memory: equal for tensors that share it."""

    address: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def is_of(self, tensor: object) -> bool:
        """Return whether it is `memory_of` the tensor, in half the time: asked after every step."""
        assert isinstance(tensor, torch.Tensor)
        try:
            return (
                tensor.data_ptr() == self.address
                and tensor.dtype is self.dtype
                and tensor.shape == self.shape
                and tensor.stride() == self.stride
                and not (tensor.is_neg() or (self.dtype.is_complex and tensor.is_conj()))
            )
        except RuntimeError:  # a sparse one has none
            return False


def memory_of(tensor: object) -> TensorMemory | None:
    """Return what tensors have in common that are the same memory; None: it has none."""
    assert isinstance(tensor, torch.Tensor)
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta:
        return None
    if tensor.is_conj() or tensor.is_neg():
        return None
    address = tensor.data_ptr()
    return TensorMemory(address, tensor.dtype, tensor.shape, tensor.stride()) if address else None


def as_memory(address: int, count: int, item_bytes: int) -> torch.Tensor:
    """Return memory of this process as a tensor of ``count`` items, each a row of bytes."""
    memory = (ctypes.c_ubyte * (count * item_bytes)).from_address(address)
    return torch.frombuffer(memory, dtype=torch.uint8).view(count, item_bytes)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor's memory as items, each a row of bytes."""
    flat = tensor.detach().reshape(-1)
    real = torch.view_as_real(flat) if flat.is_complex() else flat
    return real.view(torch.uint8).view(flat.numel(), tensor.element_size())


def refuse_without_memory(name: str, tensor: torch.Tensor) -> None:
    """Raise StateError for a tensor that is not plain memory of this process or its GPU."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise StateError(f"tensor {name!r} is sparse, nested or quantized; save its dense parts")
    if tensor.is_meta:
        raise StateError(f"tensor {name!r} is on the meta device; it has no contents to save")
    if tensor.is_conj() or tensor.is_neg():
        raise StateError(f"tensor {name!r} is a lazy conjugate or negation; resolve it first")
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        kind = with_article(type(tensor).__name__)
        raise StateError(f"tensor {name!r} is {kind}; save what it is made of")
