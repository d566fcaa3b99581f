"""NVSwitch fabric detector: whether each GPU joined the fabric, and what it says of its health."""

from everstep_agent.detectors.gpus.judging import GpuFault, judge_gpu
from everstep_agent.detectors.gpus.reading import FabricReading, GpuReading
from everstep_common.judging.condition import BOOT_GRACE_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement

_NOT_SUPPORTED, _COMPLETED = 0, 3
_STATES = {1: "not started", 2: "in progress", 3: "completed"}
_SUMMARIES = {2: "unhealthy", 3: "limited capacity"}

CONDITIONS = (
    Condition(
        name="GpuFabricNotJoined",
        component="gpu/PCI",
        meaning="the GPU belongs to an NVSwitch fabric and has not joined it, in three polls "
        "(30 s), or joined it with an error: no program can use it",
        source="nvmlGpuFabricState_t; a fabric manager was down for 20 days unseen (NVSentinel "
        "issue 883)",
        clears_when="the GPU has joined its fabric in three polls",
        raise_after=3,
        clear_after=3,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuFabricUnhealthy",
        component="gpu/PCI",
        meaning="the fabric's health mask says: degraded bandwidth, a route that is unhealthy or "
        "being recovered, access timeouts, or an incorrect configuration; or its summary says so, "
        "in three polls (30 s)",
        source="nvml.h: the mask has fields of two bits, 1 is a fault, 2 is none and 0 is not "
        "supported",
        clears_when="no field of the mask tells of a fault in three polls",
        raise_after=3,
        clear_after=3,
        mode=Mode.ADVISE,
    ),
)

_NOT_JOINED = GpuFault(
    "GpuFabricNotJoined",
    "not part of its NVSwitch fabric",
    "fabric state",
    Severity.FATAL,
    SuggestedAction.REBOOT_NODE,
)
_UNHEALTHY = GpuFault(
    "GpuFabricUnhealthy", "its NVSwitch fabric is unhealthy", "fabric health mask"
)

# Shift of each field of two bits (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_…) that is a fault when
# it is 1. Whether a partition is assigned and the manager connected are no faults of the GPU.
_FAULTS = {
    0: "degraded bandwidth",
    2: "route recovery",
    4: "route unhealthy",
    6: "access timeout recovery",
}
# A field of four bits; 0 is not supported and 1 is none.
_CONFIGURATION_SHIFT = 8
_CONFIGURATIONS = {
    2: "wrong system GUID",
    3: "wrong chassis serial number",
    4: "no partition",
    5: "too few NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}


def judge_fabric(gpu: GpuReading) -> list[Judgement]:
    """Judge one complete look at one GPU; without a fabric there is nothing to judge."""
    fabric = gpu.fabric
    if fabric is None or fabric.state == _NOT_SUPPORTED or gpu.mig_enabled:
        return []
    state = _STATES.get(fabric.state, f"state {fabric.state}")
    # The status says something only when joining is over.
    failed = fabric.state == _COMPLETED and fabric.status != 0
    evidence = f"{state}, NVML status {fabric.status}" if failed else state
    joined = fabric.state == _COMPLETED and not failed
    return [judge_gpu(gpu, _NOT_JOINED, not joined, evidence), _judge_health(gpu, fabric)]


def _judge_health(gpu: GpuReading, fabric: FabricReading) -> Judgement:
    if fabric.health_mask is None or fabric.state != _COMPLETED:
        return judge_gpu(gpu, _UNHEALTHY, None, "the driver does not say")
    troubles = fabric_troubles(fabric.health_mask)
    if summary := _SUMMARIES.get(fabric.health_summary or 0):
        troubles.append(summary)
    evidence = f"health mask {fabric.health_mask:#x}: {', '.join(troubles) or 'no fault'}"
    return judge_gpu(gpu, _UNHEALTHY, bool(troubles), evidence)


def fabric_troubles(mask: int) -> list[str]:
    """Return what a health mask complains of."""
    troubles = [words for shift, words in _FAULTS.items() if mask >> shift & 0b11 == 1]
    configuration = _CONFIGURATIONS.get(mask >> _CONFIGURATION_SHIFT & 0b1111)
    return [*troubles, configuration] if configuration else troubles
