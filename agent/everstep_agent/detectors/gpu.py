"""GPU detector: what the NVIDIA driver says of its GPUs, and whether it answers at all."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from everstep_agent.detectors.condition import BOOT_GRACE_NS, Condition
from everstep_agent.detectors.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_common.findings import Finding, FindingKey, Mode, Severity, SuggestedAction

DRIVER = "driver/nvidia"


CONDITIONS = (
    Condition(
        name="GpuLost",
        component="gpu/PCI",
        meaning="NVML says that the GPU is lost",
        source="three: the driver says so for a moment while somebody resets the GPU",
        clears_when="the GPU answers again in ten consecutive looks",
        raise_after=3,
        clear_after=10,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="GpuRecoveryAction",
        component="gpu/PCI",
        meaning="the driver asks for an action (NVML field 230, Xid 154)",
        source="the driver's own word, R565 and later",
        clears_when="the driver asks for no action",
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="RowRemapFailed",
        component="gpu/PCI",
        meaning="the driver reports a failed row remapping",
        source="NVIDIA: a failed remapping means replacement",
        clears_when="the driver reports no failed row remapping in ten looks",
        raise_after=2,
        clear_after=10,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="RowRemapPending",
        component="gpu/PCI",
        meaning="the driver reports a row remapping that waits for a reset",
        source="NVIDIA's GPU memory error management",
        clears_when="the driver reports no pending row remapping in ten looks",
        raise_after=2,
        clear_after=10,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuCountMismatch",
        component="driver/nvidia",
        meaning="another number of GPUs answers than gpus_expected says",
        source="the operator's configuration",
        clears_when="the configured number of GPUs answers in ten looks",
        raise_after=10,
        clear_after=10,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="GpuDriverUnavailable",
        component="driver/nvidia",
        meaning="NVIDIA GPUs are on the PCI bus, and the driver lists none",
        source="the PCI bus",
        clears_when="the driver lists GPUs in three looks",
        raise_after=10,
        clear_after=3,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="DriverHang",
        component="driver/nvidia",
        meaning="the driver missed its deadline, its process replaced in between",
        source="gpu_deadline_s, three times",
        clears_when="the driver answers within the deadline in ten looks",
        raise_after=3,
        clear_after=10,
        mode=Mode.ENFORCE,
    ),
)


class RecoveryAction(IntEnum):
    """NVML field 230 (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION), nvml.h of driver 570."""

    NONE = 0
    GPU_RESET = 1
    NODE_REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4


# Draining peer-to-peer traffic leaves the GPU working; all others need the job off it.
_ACTIONS = {
    RecoveryAction.GPU_RESET: (Severity.FATAL, SuggestedAction.RESET_DEVICE),
    RecoveryAction.NODE_REBOOT: (Severity.FATAL, SuggestedAction.REBOOT_NODE),
    RecoveryAction.DRAIN_P2P: (Severity.DEGRADED, SuggestedAction.WATCH),
    RecoveryAction.DRAIN_AND_RESET: (Severity.FATAL, SuggestedAction.RESET_DEVICE),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What the driver said of one GPU; None where it does not know. ``error``: no answer."""

    index: int
    uuid: str
    name: str
    pci: str
    memory_bytes: int = 0
    error: str = ""
    memory_used_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    busy_ratio: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusReading:
    """One answer of the driver. ``absent`` says why there is none: a fact, no error."""

    driver: str = ""
    gpus: tuple[GpuReading, ...] = ()
    absent: str = ""


def judge_gpus(reading: GpusReading, expected: int, on_bus: int) -> list[Judgement]:
    """Judge one answer; ``expected`` GPUs are configured (0: any), ``on_bus`` are on the bus."""
    judgements: list[Judgement] = [_judge_presence(reading, on_bus)]
    if expected:
        judgements.append(_judge_count(reading, expected))
    for gpu in reading.gpus:
        judgements += _judge_gpu(gpu)
    return judgements


def _judge_presence(reading: GpusReading, on_bus: int) -> Judgement:
    key = FindingKey(DRIVER, "GpuDriverUnavailable")
    if reading.gpus or not on_bus:
        return Healthy(key, f"the driver lists {len(reading.gpus)} GPUs, the bus {on_bus}")
    why = reading.absent or "the driver lists no GPU"
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.FATAL,
            message=f"{on_bus} NVIDIA GPUs are on the PCI bus, but cannot be used: {why}",
            evidence=why,
            suggested_action=SuggestedAction.REBOOT_NODE,
            rule="devices on the bus without a driver",
        )
    )


def _judge_count(reading: GpusReading, expected: int) -> Judgement:
    key = FindingKey(DRIVER, "GpuCountMismatch")
    found = sum(1 for gpu in reading.gpus if not gpu.error)
    evidence = f"{found} of {expected} GPUs answer"
    if found == expected:
        return Healthy(key, evidence)
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.FATAL,
            message=f"{expected} GPUs are configured, {found} answer",
            evidence=evidence,
            suggested_action=SuggestedAction.REBOOT_NODE,
            rule="configured number of GPUs",
        )
    )


def _judge_gpu(gpu: GpuReading) -> Iterable[Judgement]:
    lost = FindingKey(f"gpu/{gpu.pci}", "GpuLost")
    if gpu.error:
        yield Faulty(
            Finding(
                component=lost.component,
                condition=lost.condition,
                severity=Severity.FATAL,
                message=f"GPU {gpu.index} at {gpu.pci} does not answer its driver",
                evidence=gpu.error,
                suggested_action=SuggestedAction.REBOOT_NODE,
                rule="NVML error",
            )
        )
        return
    yield Healthy(lost, f"GPU {gpu.pci} answers")
    yield _judge_recovery(gpu)
    for flag, condition, severity in (
        (gpu.remap_failed, "RowRemapFailed", Severity.FATAL),
        (gpu.remap_pending, "RowRemapPending", Severity.DEGRADED),
    ):
        yield _judge_remap(gpu, flag, condition, severity)


def _judge_recovery(gpu: GpuReading) -> Judgement:
    key = FindingKey(f"gpu/{gpu.pci}", "GpuRecoveryAction")
    if gpu.recovery_action not in list(RecoveryAction):
        return Unknown(key, "the driver does not say (field 230)")
    action = RecoveryAction(gpu.recovery_action)
    return recovery_finding(gpu.pci, action, "NVML field 230", f"field 230 = {action.value}")


def recovery_finding(
    pci: str, action: RecoveryAction, rule: str, evidence: str, injected: bool = False
) -> Judgement:
    """Judge what the driver itself asks for."""
    key = FindingKey(f"gpu/{pci}", "GpuRecoveryAction")
    if action is RecoveryAction.NONE:
        return Healthy(key, evidence)
    severity, suggested = _ACTIONS[action]
    words = action.name.lower().replace("_", " ")
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=severity,
            message=f"the driver asks for: {words} (GPU {pci})",
            evidence=evidence,
            suggested_action=suggested,
            rule=rule,
            injected=injected,
        )
    )


def _judge_remap(
    gpu: GpuReading, flag: bool | None, condition: str, severity: Severity
) -> Judgement:
    key = FindingKey(f"gpu/{gpu.pci}", condition)
    if flag is None:
        return Unknown(key, "the driver does not say")
    if not flag:
        return Healthy(key, "the flag is off")
    failed = condition == "RowRemapFailed"
    return Faulty(
        Finding(
            component=key.component,
            condition=condition,
            severity=severity,
            message=f"GPU {gpu.pci}: row remapping {'failed' if failed else 'waits for a reset'}",
            evidence=f"nvmlDeviceGetRemappedRows: {'failure' if failed else 'pending'} flag",
            suggested_action=(
                SuggestedAction.REPAIR_HARDWARE if failed else SuggestedAction.RESET_DEVICE
            ),
            rule="row remapping flags",
        )
    )


def judge_driver_hang(missed: str) -> Judgement:
    """Judge whether the driver answered; ``missed`` says how it did not, empty when it did."""
    key = FindingKey(DRIVER, "DriverHang")
    if not missed:
        return Healthy(key, "the driver answered within the deadline")
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.FATAL,
            message="the NVIDIA driver does not answer",
            evidence=missed,
            suggested_action=SuggestedAction.REBOOT_NODE,
            rule="deadline of the driver probe",
        )
    )
