"""Fast GPU values: those that change in seconds and are read at every reading of a GPU."""

from collections.abc import Mapping

from everstep_agent.probes.gpus.nvml_process.calls import Calls, Field, as_flag, member, scaled

Values = dict[str, object]

# NVML_FI_DEV_… of nvml.h.
_RECOVERY_ACTION = 230
_MEMORY_TEMPERATURE = 82
_ECC_CORRECTED, _ECC_UNCORRECTED = 3, 4
_REMAP_PENDING, _REMAP_FAILED = 144, 145
_FIELDS: tuple[Field, ...] = (
    _RECOVERY_ACTION,
    _MEMORY_TEMPERATURE,
    _ECC_CORRECTED,
    _ECC_UNCORRECTED,
    _REMAP_PENDING,
    _REMAP_FAILED,
)
# nvmlTemperatureSensors_t, nvmlClockType_t, nvmlMemoryErrorType_t and nvmlEccCounterType_t.
_SENSOR_GPU = 0
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_CORRECTED, _UNCORRECTED, _VOLATILE = 0, 1, 0


def read_fast(calls: Calls, handle: object) -> Values:
    """Return the fields of GpuReading that change in seconds. Raises GoneError."""
    # Asked first: an error here means that the GPU is gone, not that it lacks a feature.
    used = _memory_used(calls, handle)
    fields = calls.fields(handle, _FIELDS)
    busy = member(calls.may("nvmlDeviceGetUtilizationRates", handle), "gpu")
    return {
        "error": "",
        "error_code": None,
        "memory_used_bytes": used,
        "temperature_c": calls.number("nvmlDeviceGetTemperature", handle, _SENSOR_GPU),
        # 0 stands for a memory without a sensor.
        "memory_temperature_c": fields.get(_MEMORY_TEMPERATURE) or None,
        "power_w": scaled(calls.number("nvmlDeviceGetPowerUsage", handle), 1000),
        "busy_ratio": scaled(busy, 100),
        "sm_clock_mhz": calls.number("nvmlDeviceGetClockInfo", handle, _CLOCK_SM),
        "memory_clock_mhz": calls.number("nvmlDeviceGetClockInfo", handle, _CLOCK_MEMORY),
        "clock_reasons": _clock_reasons(calls, handle),
        "recovery_action": fields.get(_RECOVERY_ACTION),
        "ecc_corrected": _ecc(calls, handle, fields.get(_ECC_CORRECTED), _CORRECTED),
        "ecc_uncorrected": _ecc(calls, handle, fields.get(_ECC_UNCORRECTED), _UNCORRECTED),
        **_remapping(calls, handle, fields),
    }


def _memory_used(calls: Calls, handle: object) -> int | None:
    # Version 2 does not count what the driver keeps for itself.
    version = getattr(calls.library, "nvmlMemory_v2", None)
    memory = version and calls.may("nvmlDeviceGetMemoryInfo", handle, version)
    if memory is None:
        memory = calls.must("nvmlDeviceGetMemoryInfo", handle)
    return member(memory, "used")


def _clock_reasons(calls: Calls, handle: object) -> int | None:
    reasons = calls.number("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is not None:
        return reasons
    # The function's name before driver 535.
    return calls.number("nvmlDeviceGetCurrentClocksThrottleReasons", handle)


def _ecc(calls: Calls, handle: object, field: int | None, kind: int) -> int | None:
    if field is not None:
        return field
    return calls.number("nvmlDeviceGetTotalEccErrors", handle, kind, _VOLATILE)


def _remapping(calls: Calls, handle: object, fields: Mapping[Field, int]) -> Values:
    pending, failed = fields.get(_REMAP_PENDING), fields.get(_REMAP_FAILED)
    if pending is None or failed is None:
        rows = calls.may("nvmlDeviceGetRemappedRows", handle)
        if isinstance(rows, tuple):
            pending, failed = rows[2:4]
    return {"remap_pending": as_flag(pending), "remap_failed": as_flag(failed)}
