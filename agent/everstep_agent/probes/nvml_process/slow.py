"""Slow GPU values: those that change in minutes and are read at every tenth reading of a GPU."""

from collections.abc import Iterable, Mapping, Sized
from typing import cast

from everstep_agent.probes.nvml_process.calls import Calls, Field, as_flag, member, scaled
from everstep_agent.probes.nvml_process.fabric import read_fabric
from everstep_agent.probes.nvml_process.slices import read_slices

Values = dict[str, object]

# NVML_FI_DEV_… of nvml.h, and their names in GpuReading.
_COUNTS: Mapping[Field, str] = {
    5: "ecc_corrected_aggregate",
    6: "ecc_uncorrected_aggregate",
    29: "retired_single_bit",
    30: "retired_double_bit",
    94: "pcie_replays",
    142: "remapped_corrected",
    143: "remapped_uncorrected",
}
_FLAGS: Mapping[Field, str] = {1: "ecc_enabled", 31: "retired_pending"}
_FIELDS = (*_COUNTS, *_FLAGS)
_NUMBERS = {
    "thermal_margin_c": "nvmlDeviceGetMarginTemperature",
    "pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration",
    "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth",
}


def read_slow(calls: Calls, handle: object) -> Values:
    """Return the fields of GpuReading that change in minutes. Raises GoneError."""
    fields = calls.fields(handle, _FIELDS)
    limit = calls.number("nvmlDeviceGetEnforcedPowerLimit", handle)
    histogram = calls.may("nvmlDeviceGetRowRemapperHistogram", handle)
    sram = calls.struct("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t", handle)
    graphics = calls.may("nvmlDeviceGetGraphicsRunningProcesses_v3", handle)
    values: Values = {name: fields.get(field) for field, name in _COUNTS.items()}
    values |= {name: as_flag(fields.get(field)) for field, name in _FLAGS.items()}
    values |= {name: calls.number(function, handle) for name, function in _NUMBERS.items()}
    if values["pcie_replays"] is None:
        values["pcie_replays"] = calls.number("nvmlDeviceGetPcieReplayCounter", handle)
    return values | {
        "power_limit_w": scaled(limit, 1000),
        "remap_banks_exhausted": member(histogram, "none"),
        "sram_threshold_exceeded": as_flag(member(sram, "bThresholdExceeded")),
        "persistence": as_flag(calls.number("nvmlDeviceGetPersistenceMode", handle)),
        "processes": _processes(calls, handle),
        "graphics_processes": len(graphics) if isinstance(graphics, Sized) else None,
        "fabric": read_fabric(calls, handle),
        **read_slices(calls, handle),
    }


def _processes(calls: Calls, handle: object) -> list[Values] | None:
    found = calls.may("nvmlDeviceGetComputeRunningProcesses_v3", handle)
    if found is None:
        found = calls.may("nvmlDeviceGetComputeRunningProcesses_v2", handle)
    if found is None:
        return None
    return [
        {"pid": member(process, "pid"), "memory_bytes": member(process, "usedGpuMemory")}
        for process in cast("Iterable[object]", found)
    ]
