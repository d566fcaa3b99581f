"""GPU use: whether somebody works on a GPU, as NVML says; then the test leaves it alone."""

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_int, c_uint, c_ulonglong, c_void_p

_INSUFFICIENT_SIZE, _NOT_SUPPORTED = 7, 3
_PROCESSES_MAX = 64
# An idle GPU shows up to some MiB; the context of one process takes more than this.
_IDLE_BYTES = 256 << 20
_MEMORY_VERSION = 2


class _ProcessInfo(Structure):
    """nvmlProcessInfo_t of nvml.h, version 3."""

    _fields_ = [
        ("pid", c_uint),
        ("used_bytes", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    ]


class _MemoryInfo(Structure):
    """nvmlMemory_v2_t of nvml.h: ``used`` does not count what the driver keeps for itself."""

    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


_CALLS: dict[str, list[object]] = {
    "nvmlInit_v2": [],
    "nvmlDeviceGetHandleByPciBusId_v2": [c_char_p, POINTER(c_void_p)],
    "nvmlDeviceGetComputeRunningProcesses_v3": [c_void_p, POINTER(c_uint), POINTER(_ProcessInfo)],
    "nvmlDeviceGetMemoryInfo_v2": [c_void_p, POINTER(_MemoryInfo)],
    "nvmlDeviceGetMigMode": [c_void_p, POINTER(c_uint), POINTER(c_uint)],
}


class GpuUse:
    """What NVML says of who uses the GPUs. Without NVML nobody can say so: none is tested."""

    def __init__(self, library: str = "libnvidia-ml.so.1") -> None:
        self._why = ""
        try:
            self._library = ctypes.CDLL(library)
            for name, types in _CALLS.items():
                call = getattr(self._library, name)
                call.argtypes, call.restype = types, c_int
        except (OSError, AttributeError) as error:
            self._why = f"NVML cannot say who uses it: {error}"
            return
        if code := self._library.nvmlInit_v2():
            self._why = f"NVML cannot say who uses it (nvmlInit: error {code})"

    def why_not_tested(self, pci: str) -> str:
        """Return why a GPU is left alone; empty when nobody uses it."""
        if self._why:
            return self._why
        handle = c_void_p()
        nvml = self._library
        if code := nvml.nvmlDeviceGetHandleByPciBusId_v2(pci.encode(), ctypes.byref(handle)):
            return f"NVML does not find it (error {code})"
        current, pending = c_uint(), c_uint()
        mig = nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(current), ctypes.byref(pending))
        if mig == 0 and current.value:
            return "it is partitioned (MIG)"
        return self._users(handle) or self._memory(handle)

    def _users(self, handle: c_void_p) -> str:
        count = c_uint(_PROCESSES_MAX)
        infos = (_ProcessInfo * _PROCESSES_MAX)()
        code = self._library.nvmlDeviceGetComputeRunningProcesses_v3(
            handle, ctypes.byref(count), infos
        )
        if code not in (0, _INSUFFICIENT_SIZE):
            return f"NVML cannot say who uses it (error {code})"
        if not count.value:
            return ""
        if code:
            return f"{count.value} processes use it"
        pids = ", ".join(str(info.pid) for info in infos[: min(count.value, 3)])
        return f"in use by process {pids}" if count.value == 1 else f"in use by processes {pids}"

    def _memory(self, handle: c_void_p) -> str:
        """Return that memory is in use: processes of other containers may not be listed."""
        info = _MemoryInfo(version=ctypes.sizeof(_MemoryInfo) | _MEMORY_VERSION << 24)
        if self._library.nvmlDeviceGetMemoryInfo_v2(handle, ctypes.byref(info)):
            return ""
        used_mib = info.used >> 20
        return f"{used_mib} MiB of its memory are in use" if info.used > _IDLE_BYTES else ""
