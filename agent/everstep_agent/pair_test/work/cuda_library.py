"""CUDA driver library by ctypes: its calls with their types, and its errors in words."""

import contextlib
import ctypes
from collections.abc import Iterator
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import dataclass

SUCCESS = 0
# CUresult of cuda.h, for those that have a cause an operator can act on.
_WORDS = {
    2: "it has no memory left for the test",
    3: "the CUDA driver is not initialised",
    35: "the CUDA driver is too old",
    46: "the GPU is held by another process (compute mode exclusive)",
    100: "no GPU can be seen by this process",
    101: "no such GPU",
    201: "the context is not valid",
    214: "an uncorrectable memory error (ECC)",
    220: "an NVLink error that cannot be corrected",
    221: "the driver's PTX compiler (libnvidia-ptxjitcompiler) is missing",
    222: "the driver is too old for the test's kernel",
    700: "the kernel used an address that it may not",
    702: "the kernel took too long",
    719: "the kernel failed on the GPU",
    802: "the fabric manager has not started the NVLink system",
    803: "kernel module and CUDA library are of different versions",
    999: "an unknown error",
}
# CU_CTX_SCHED_BLOCKING_SYNC: a thread that waits for the GPU sleeps, and others are not slowed.
_BLOCKING_SYNC = 0x04
# CUdevice_attribute of cuda.h.
MULTIPROCESSORS, CLOCK_KHZ = 16, 13
# CUevent_flags: CU_EVENT_BLOCKING_SYNC.
_EVENT_BLOCKING_SYNC = 0x1
_PCI_BYTES, _NAME_BYTES = 32, 96

# The names that the library exports; those that ended in _v2 take 64-bit addresses and sizes.
_CALLS: dict[str, list[object]] = {
    "cuInit": [c_uint],
    "cuDriverGetVersion": [POINTER(c_int)],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetByPCIBusId": [POINTER(c_int), c_char_p],
    "cuDeviceGetPCIBusId": [c_char_p, c_int, c_int],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuCtxCreate_v2": [POINTER(c_void_p), c_uint, c_int],
    "cuCtxDestroy_v2": [c_void_p],
    "cuCtxSynchronize": [],
    "cuMemGetInfo_v2": [POINTER(c_size_t), POINTER(c_size_t)],
    "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
    "cuMemFree_v2": [c_uint64],
    "cuMemAllocHost_v2": [POINTER(c_void_p), c_size_t],
    "cuMemFreeHost": [c_void_p],
    "cuMemcpyDtoDAsync_v2": [c_uint64, c_uint64, c_size_t, c_void_p],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
    "cuMemsetD8Async": [c_uint64, ctypes.c_ubyte, c_size_t, c_void_p],
    "cuModuleLoadData": [POINTER(c_void_p), c_char_p],
    "cuModuleGetFunction": [POINTER(c_void_p), c_void_p, c_char_p],
    "cuModuleUnload": [c_void_p],
    # Function, grid x y z, block x y z, shared bytes, stream, parameters, extra.
    "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), c_void_p],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventDestroy_v2": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
}


class CudaError(Exception):
    """A call of the CUDA driver failed."""

    def __init__(self, call: str, code: int, name: str = "") -> None:
        words = _WORDS.get(code, "it failed")
        super().__init__(f"{words} ({call}: {name or 'error'} {code})")
        self.code = code


class NoCudaError(Exception):
    """This node has no CUDA driver library, or one that cannot be used."""


@dataclass(frozen=True, slots=True)
class CudaGpu:
    """One GPU as CUDA counts it."""

    device: int
    pci: str
    name: str
    multiprocessors: int


class Cuda:
    """CUDA driver of this process. Raises NoCudaError without one."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        try:
            self._library = ctypes.CDLL(library)
            for name, types in _CALLS.items():
                call = getattr(self._library, name)
                call.argtypes, call.restype = types, c_int
        except (OSError, AttributeError) as error:
            raise NoCudaError(f"no CUDA driver library: {error}") from error

    def call(self, name: str, *arguments: object) -> None:
        """Call a function. Raises CudaError when it does not succeed."""
        code: int = getattr(self._library, name)(*arguments)
        if code != SUCCESS:
            raise CudaError(name, code, self._error_name(code))

    def gpus(self) -> list[CudaGpu]:
        """Initialise the driver and return its GPUs, in the order of PCI. Raises CudaError."""
        self.call("cuInit", 0)
        count = c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        found = []
        for ordinal in range(count.value):
            device = c_int()
            self.call("cuDeviceGet", ctypes.byref(device), ordinal)
            found.append(self._describe(device.value))
        return sorted(found, key=lambda gpu: gpu.pci)

    def _describe(self, device: int) -> CudaGpu:
        pci = ctypes.create_string_buffer(_PCI_BYTES)
        self.call("cuDeviceGetPCIBusId", pci, _PCI_BYTES, device)
        name = ctypes.create_string_buffer(_NAME_BYTES)
        self.call("cuDeviceGetName", name, _NAME_BYTES, device)
        count = c_int()
        self.call("cuDeviceGetAttribute", ctypes.byref(count), MULTIPROCESSORS, device)
        pci_text, name_text = (text.value.decode(errors="replace") for text in (pci, name))
        return CudaGpu(device, pci_text.lower(), name_text, count.value)

    @contextlib.contextmanager
    def context(self, gpu: CudaGpu) -> Iterator[None]:
        """Be in a context of a GPU, in this thread; with its end all that was made in it is gone.

        The GPU is looked for by its place on PCI: whoever renumbers GPUs does not change that.
        """
        device, made = c_int(), c_void_p()
        self.call("cuDeviceGetByPCIBusId", ctypes.byref(device), gpu.pci.encode())
        self.call("cuCtxCreate_v2", ctypes.byref(made), _BLOCKING_SYNC, device.value)
        try:
            yield
        finally:
            # What fails here is no news: the process ends, and the driver frees all it had.
            self._library.cuCtxDestroy_v2(made)

    def free_bytes(self) -> int:
        """Return how much of the GPU's memory is free, in bytes. Raises CudaError."""
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, size: int) -> int:
        """Return an address in the GPU's memory. Raises CudaError."""
        address = c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), size)
        return address.value

    def allocate_host(self, size: int) -> int:
        """Return an address in page-locked memory of the host. Raises CudaError."""
        address = c_void_p()
        self.call("cuMemAllocHost_v2", ctypes.byref(address), size)
        return address.value or 0

    def load(self, ptx: bytes, function: bytes) -> c_void_p:
        """Compile PTX for this GPU and return one of its functions. Raises CudaError."""
        module, found = c_void_p(), c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ptx)
        self.call("cuModuleGetFunction", ctypes.byref(found), module, function)
        return found

    def event(self) -> c_void_p:
        """Return an event, which notes when the GPU has come so far. Raises CudaError."""
        made = c_void_p()
        self.call("cuEventCreate", ctypes.byref(made), _EVENT_BLOCKING_SYNC)
        return made

    def elapsed_s(self, start: c_void_p, end: c_void_p) -> float:
        """Wait for the second event; return the seconds since the first. Raises CudaError."""
        self.call("cuEventSynchronize", end)
        passed_ms = c_float()
        self.call("cuEventElapsedTime", ctypes.byref(passed_ms), start, end)
        return passed_ms.value / 1e3

    def _error_name(self, code: int) -> str:
        text = c_char_p()
        if self._library.cuGetErrorName(code, ctypes.byref(text)) != SUCCESS or not text.value:
            return ""
        return text.value.decode(errors="replace")
