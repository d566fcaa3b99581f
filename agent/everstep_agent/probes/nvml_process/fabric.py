"""NVML fabric state: a GPU's place in its NVSwitch fabric, in the newest form the driver knows."""

from everstep_agent.probes.nvml_process.calls import Calls, member

# Forms of the question, the newest first; older drivers answer only the older ones.
_FORMS = (
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
    ("nvmlDeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("nvmlDeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)


def read_fabric(calls: Calls, handle: object) -> dict[str, object] | None:
    """Return the fields of FabricReading. Raises GoneError."""
    for function, kind in _FORMS:
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
