"""GPU in the NVML process: reads its identity once, fast values always, slow values rarely."""

from everstep_agent.probes.gpus.nvml_process.calls import Calls, GoneError, as_text, member
from everstep_agent.probes.gpus.nvml_process.fast import read_fast
from everstep_agent.probes.gpus.nvml_process.links import Nvlinks
from everstep_agent.probes.gpus.nvml_process.slow import read_slow

Values = dict[str, object]

# nvmlTemperatureThresholds_t, nvmlClockType_t and NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT.
_THRESHOLD_SLOWDOWN, _THRESHOLD_MEMORY, _THRESHOLD_GPU = 1, 2, 3
_CLOCK_SM = 1
_MAX_TLIMIT = 196


class Gpu:
    """One GPU. What identifies it is read once: a lost GPU cannot say it any more."""

    def __init__(self, calls: Calls, index: int) -> None:
        self._calls = calls
        self._links: Nvlinks | None = None
        self._index = index
        self.handle: object = None
        self.pci = f"index-{index}"
        self._facts: Values = {
            "index": index,
            "uuid": "",
            "name": "NVIDIA GPU",
            "pci": self.pci,
            "memory_bytes": 0,
        }

    def read(self, complete: bool) -> Values:
        """Return fields of GpuReading."""
        try:
            if self._links is None:
                self._links = self._identify()
            values = read_fast(self._calls, self.handle)
            if complete:
                values |= self._facts | read_slow(self._calls, self.handle)
                values["nvlinks"] = self._links.read()
            return values
        except GoneError as error:
            return self._facts | {"error": str(error), "error_code": error.code}

    def _identify(self) -> Nvlinks:
        """Read what does not change. Raises GoneError."""
        calls = self._calls
        handle = calls.must("nvmlDeviceGetHandleByIndex", self._index)
        bus = getattr(calls.must("nvmlDeviceGetPciInfo", handle), "busId", "")
        domain, _, rest = as_text(bus).lower().partition(":")
        self.handle, self.pci = handle, f"{domain[-4:]}:{rest}"
        self._facts |= {
            "uuid": as_text(calls.must("nvmlDeviceGetUUID", handle)),
            "name": as_text(calls.must("nvmlDeviceGetName", handle)),
            "pci": self.pci,
            "memory_bytes": member(calls.must("nvmlDeviceGetMemoryInfo", handle), "total") or 0,
            "vbios": calls.text("nvmlDeviceGetVbiosVersion", handle),
            "inforom": calls.text("nvmlDeviceGetInforomImageVersion", handle),
            "sm_clock_max_mhz": calls.number("nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM),
            "pcie_generation_max": calls.number("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            "pcie_width_max": calls.number("nvmlDeviceGetMaxPcieLinkWidth", handle),
            "temperature_slowdown_c": self._threshold(handle, _THRESHOLD_SLOWDOWN),
            "temperature_max_c": self._threshold(handle, _THRESHOLD_GPU),
            "memory_temperature_max_c": self._threshold(handle, _THRESHOLD_MEMORY),
            "max_tlimit_c": calls.fields(handle, [_MAX_TLIMIT]).get(_MAX_TLIMIT),
        }
        return Nvlinks(calls, handle)

    def _threshold(self, handle: object, kind: int) -> int | None:
        return self._calls.number("nvmlDeviceGetTemperatureThreshold", handle, kind)
