"""CUDA device for the copy engine, through torch; imported only when a state has a CUDA tensor."""

import ctypes
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, SupportsInt

import torch

from everstep.copy_engine.device_copies import DeviceCopy

logger = logging.getLogger("everstep")

# cudaHostRegisterPortable: pinned for every context of the process, not only the current one.
_PORTABLE = 1


class TorchCuda:
    """CUDA as a Device for copies of tensors."""

    def __init__(self) -> None:
        self._side: dict[int, torch.cuda.Stream] = {}
        self._pinned: set[int] = set()
        self._told = False
        self._home = torch.cuda.current_device()

    def pin(self, address: int, size_bytes: int) -> None:
        """See Pinner; cudaHostRegister."""
        # Another thread begins at device 0, and would open a context there that nobody needs.
        with torch.cuda.device(self._home):
            error = int(_cudart().cudaHostRegister(address, size_bytes, _PORTABLE))
        if error == 0:
            self._pinned.add(address)
            return
        _forget_error()
        if not self._told:
            self._told = True
            logger.warning(
                "snapshot memory cannot be pinned (CUDA error %d), so copies from the GPU are"
                " slower; see 'ulimit -l' and the memory limit of the job",
                error,
            )

    def unpin(self, address: int) -> None:
        """See Pinner."""
        if address in self._pinned:
            self._pinned.remove(address)
            if int(_cudart().cudaHostUnregister(address)) != 0:
                _forget_error()

    def device_of(self, tensor: object) -> int:
        """See Device."""
        assert isinstance(tensor, torch.Tensor)
        return tensor.get_device()

    def clone(self, tensor: object) -> object:
        """See Device."""
        assert isinstance(tensor, torch.Tensor)
        return tensor.detach().clone()

    def mark(self, device: int) -> object:
        """See Device."""
        return torch.cuda.current_stream(device).record_event()

    def copy(self, device: int, copies: Sequence[DeviceCopy], after: object) -> object:
        """See Device."""
        assert isinstance(after, torch.cuda.Event)
        side = self._side.get(device)
        if side is None:
            side = self._side[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_event(after)
        with torch.cuda.stream(side):
            for one in copies:
                assert isinstance(one.tensor, torch.Tensor)
                bytes_of(one.address, one.size_bytes).copy_(flat(one.tensor), non_blocking=True)
                # Whoever frees the tensor meanwhile does not get its memory used anew too early.
                one.tensor.record_stream(side)
            return side.record_event()

    def hold(self, device: int, mark: object) -> None:
        """See Device."""
        assert isinstance(mark, torch.cuda.Event)
        torch.cuda.current_stream(device).wait_event(mark)

    def wait(self, mark: object) -> None:
        """See Device."""
        assert isinstance(mark, torch.cuda.Event)
        mark.synchronize()


class _Cudart(Protocol):
    """Two calls of the CUDA runtime, as torch hands them on; they return a cudaError."""

    def cudaHostRegister(self, address: int, size_bytes: int, flags: int, /) -> SupportsInt:  # noqa: N802
        ...

    def cudaHostUnregister(self, address: int, /) -> SupportsInt:  # noqa: N802
        ...


def _cudart() -> _Cudart:
    runtime: _Cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    return runtime


def upload(tensor: object, address: int) -> None:
    """Fill a contiguous CUDA tensor from memory of this process."""
    assert isinstance(tensor, torch.Tensor)
    size_bytes = tensor.numel() * tensor.element_size()
    flat(tensor).copy_(bytes_of(address, size_bytes))


def bytes_of(address: int, size_bytes: int) -> torch.Tensor:
    """Return memory of this process as a tensor of bytes."""
    return torch.frombuffer((ctypes.c_ubyte * size_bytes).from_address(address), dtype=torch.uint8)


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor's bytes, without a copy."""
    return tensor.detach().reshape(-1).view(torch.uint8)


def _forget_error() -> None:
    """Take back CUDA's last error, or the next kernel of the training would be blamed for it."""
    library = re.search(r"\S*/libcudart\.so\S*", Path("/proc/self/maps").read_text())
    if library:
        ctypes.CDLL(library[0]).cudaGetLastError()
