"""What needs torch but no card: bytes of tensors, and what is asked of the CUDA runtime."""

import ctypes

import pytest
import torch

from everstep.copy_engine.cuda import bytes_of, flat, upload


@pytest.mark.parametrize(
    "dtype",
    ["float64", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool", "complex64", "int16", "uint64"],
)
@pytest.mark.parametrize("shape", [(), (3,), (4, 5)])
def test_a_tensor_of_any_format_goes_as_bytes_and_comes_back(
    dtype: str, shape: tuple[int, ...]
) -> None:
    tensor = torch.randint(0, 2, shape).to(getattr(torch, dtype))
    size = tensor.numel() * tensor.element_size()
    memory = (ctypes.c_ubyte * size)()
    bytes_of(ctypes.addressof(memory), size).copy_(flat(tensor))
    again = torch.zeros_like(tensor)
    upload(again, ctypes.addressof(memory))
    assert torch.equal(flat(again), flat(tensor))
