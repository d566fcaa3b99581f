"""GPU recovery action: what the driver wants done with a GPU, from NVML field 230 or Xid 154."""

from everstep_agent.detectors.gpus.reading import RecoveryAction
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown

CONDITIONS = (
    Condition(
        name="GpuRecoveryAction",
        component="gpu/PCI",
        meaning="the driver suggests a recovery action (NVML field 230, Xid 154)",
        source="reported by the driver, R565 and later",
        clears_when="the driver suggests no action",
        mode=Mode.ENFORCE,
    ),
)

# Draining peer-to-peer traffic leaves the GPU working; all others need the job off it.
_ACTIONS = {
    RecoveryAction.GPU_RESET: (Severity.FATAL, SuggestedAction.RESET_DEVICE),
    RecoveryAction.NODE_REBOOT: (Severity.FATAL, SuggestedAction.REBOOT_NODE),
    RecoveryAction.DRAIN_P2P: (Severity.DEGRADED, SuggestedAction.WATCH),
    RecoveryAction.DRAIN_AND_RESET: (Severity.FATAL, SuggestedAction.RESET_DEVICE),
}


def judge_recovery(component: str, asked: int | None) -> Judgement:
    """Judge field 230 of one GPU."""
    key = FindingKey(component, "GpuRecoveryAction")
    if asked not in list(RecoveryAction):
        return Unknown(key, "the driver does not say (field 230)")
    action = RecoveryAction(asked)
    pci = component.removeprefix("gpu/")
    return recovery_finding(pci, action, "NVML field 230", f"field 230 = {action.value}")


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
