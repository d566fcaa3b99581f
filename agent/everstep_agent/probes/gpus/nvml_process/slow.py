"""Slow GPU values: those that change in minutes and are read at every tenth reading of a GPU."""

from collections.abc import Iterable, Mapping, Sized
from typing import cast

from everstep_agent.probes.gpus.nvml_process.calls import (
    Calls,
    Field,
    as_flag,
    as_text,
    member,
    scaled,
)

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
# Fields of nvmlEccSramErrorStatus_t: errors of the caches that were not corrected.
_SRAM_COUNTS = {
    "sram_parity": "volatileUncParity",
    "sram_secded": "volatileUncSecDed",
    "sram_parity_aggregate": "aggregateUncParity",
    "sram_secded_aggregate": "aggregateUncSecDed",
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
        **{name: member(sram, field) for name, field in _SRAM_COUNTS.items()},
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


# Forms of the question about NVLink's fabric, newest first; older drivers answer older ones.
_FABRIC_FORMS = (
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)


def read_fabric(calls: Calls, handle: object) -> dict[str, object] | None:
    """Return the fields of FabricReading. Raises GoneError."""
    for function, kind in _FABRIC_FORMS:
        info = calls.struct(function, kind, handle)
        if info is not None:
            return {
                # A byte in the driver, a word in pynvml: the rest of it is padding.
                "state": (member(info, "state") or 0) & 0xFF,
                "status": member(info, "status") or 0,
                "health_mask": member(info, "healthMask"),
                "health_summary": member(info, "healthSummary"),
            }
    return None


_MIG_ENABLED = 1
_NO_SLICES: Values = {"mig_enabled": None, "mig_devices": []}


def read_slices(calls: Calls, handle: object) -> Values:
    """Return whether a GPU is sliced, and its slices. Raises GoneError."""
    mode = calls.may("nvmlDeviceGetMigMode", handle)
    if not isinstance(mode, list):
        return _NO_SLICES
    if mode[0] != _MIG_ENABLED:
        return {"mig_enabled": False, "mig_devices": []}
    most = calls.number("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    found = (calls.may("nvmlDeviceGetMigDeviceHandleByIndex", handle, i) for i in range(most))
    slices = [_slice(calls, one) for one in found if one is not None]
    return {"mig_enabled": True, "mig_devices": slices}


def _slice(calls: Calls, handle: object) -> Values:
    return {
        "uuid": as_text(calls.may("nvmlDeviceGetUUID", handle) or ""),
        "name": as_text(calls.may("nvmlDeviceGetName", handle) or ""),
        "memory_bytes": member(calls.may("nvmlDeviceGetMemoryInfo", handle), "total"),
    }
