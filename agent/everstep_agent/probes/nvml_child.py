"""The process that talks to the NVIDIA driver, so that nobody else has to wait for it.

Started by its path; it imports nothing of ours. For every line on standard input it writes one line
of JSON, the fields of GpusReading; without the driver's library it says so once and ends. It ends
with its standard input, that is with the agent.
"""

import contextlib
import functools
import importlib
import json
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TypeVar

T = TypeVar("T")

# nvml.h of driver 570: what the driver itself says should be done with the GPU.
_FIELD_RECOVERY_ACTION = 230


class _Gpu:
    """One GPU. What identifies it is read once: a lost GPU cannot say it any more."""

    def __init__(self, nvml: ModuleType, index: int) -> None:
        self._nvml = nvml
        self._handle = None
        self._fixed: dict[str, object] = {
            "index": index,
            "uuid": "",
            "name": "NVIDIA GPU",
            "pci": f"index-{index}",
            "memory_bytes": 0,
        }

    def read(self) -> dict[str, object]:
        """Return the fields of GpuReading."""
        try:
            if self._handle is None:
                self._identify()
            return self._fixed | self._measure()
        except self._nvml.NVMLError as error:
            return self._fixed | {"error": str(error)}

    def _identify(self) -> None:
        nvml = self._nvml
        handle = nvml.nvmlDeviceGetHandleByIndex(self._fixed["index"])
        domain, _, rest = _text(nvml.nvmlDeviceGetPciInfo(handle).busId).lower().partition(":")
        self._fixed |= {
            "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
            "name": _text(nvml.nvmlDeviceGetName(handle)),
            "pci": f"{domain[-4:]}:{rest}",
            "memory_bytes": nvml.nvmlDeviceGetMemoryInfo(handle).total,
        }
        self._handle = handle

    def _measure(self) -> dict[str, object]:
        nvml, handle = self._nvml, self._handle
        # Not optional: this is the call that tells a lost GPU from one that lacks a feature.
        used = nvml.nvmlDeviceGetMemoryInfo(handle).used
        remapped = self._optional(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
        temperature = nvml.NVML_TEMPERATURE_GPU
        kinds = (nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        corrected, uncorrected = (
            self._optional(functools.partial(nvml.nvmlDeviceGetTotalEccErrors, handle, kind, 0))
            for kind in kinds
        )
        power_mw = self._optional(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        busy = self._optional(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        return {
            "memory_used_bytes": used,
            "temperature_c": self._optional(
                lambda: nvml.nvmlDeviceGetTemperature(handle, temperature)
            ),
            "power_w": None if power_mw is None else power_mw / 1000,
            "busy_ratio": None if busy is None else busy / 100,
            "ecc_corrected": corrected,
            "ecc_uncorrected": uncorrected,
            "remap_pending": None if remapped is None else bool(remapped[2]),
            "remap_failed": None if remapped is None else bool(remapped[3]),
            "recovery_action": self._optional(self._recovery_action),
        }

    def _recovery_action(self) -> int | None:
        (value,) = self._nvml.nvmlDeviceGetFieldValues(self._handle, [_FIELD_RECOVERY_ACTION])
        return int(value.value.uiVal) if value.nvmlReturn == 0 else None

    def _optional(self, read: Callable[[], T]) -> T | None:
        """Return None for what this GPU or driver lacks. Raises NVMLError for a lost GPU."""
        nvml = self._nvml
        try:
            return read()
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return None
        except (nvml.NVMLError_NoPermission, nvml.NVMLError_InvalidArgument):
            return None


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _answer(reading: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(reading) + "\n")
    sys.stdout.flush()


def serve(requests: Iterable[str]) -> None:
    """Answer until there are no more requests."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        _answer({"absent": "the Python package nvidia-ml-py is not installed"})
        return
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        # No library: no NVIDIA driver on this node. Any other word comes from a driver.
        missing = isinstance(error, nvml.NVMLError_LibraryNotFound)
        why = "NVIDIA driver library not found" if missing else f"NVIDIA driver: {error}"
        _answer({"absent": why})
        return
    driver = _text(nvml.nvmlSystemGetDriverVersion())
    gpus = [_Gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
    for _ in requests:
        _answer({"driver": driver, "gpus": [gpu.read() for gpu in gpus]})


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        serve(sys.stdin)
