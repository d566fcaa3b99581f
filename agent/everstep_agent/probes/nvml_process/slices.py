"""MIG devices of a GPU: the slices that it is divided into, listed and not judged."""

from everstep_agent.probes.nvml_process.calls import Calls, as_text, member

Values = dict[str, object]

_ENABLED = 1
_NONE: Values = {"mig_enabled": None, "mig_devices": []}


def read_slices(calls: Calls, handle: object) -> Values:
    """Return whether a GPU is sliced, and its slices. Raises GoneError."""
    mode = calls.may("nvmlDeviceGetMigMode", handle)
    if not isinstance(mode, list):
        return _NONE
    if mode[0] != _ENABLED:
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
