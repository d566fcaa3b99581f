"""GPU judgements: builds the faulty or healthy judgement of one GPU condition from its value."""

from dataclasses import dataclass
from functools import lru_cache

from everstep_agent.detectors.gpus.reading import GpuReading
from everstep_common.judging.findings import Finding, FindingKey, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown


@dataclass(frozen=True, slots=True, eq=False)
class GpuFault:
    """Fault that a condition of a GPU stands for; ``says`` follows the GPU's address."""

    condition: str
    says: str
    rule: str
    severity: Severity = Severity.DEGRADED
    action: SuggestedAction = SuggestedAction.WATCH


# A healthy node says the same at every poll: 100 judgements a second that need not be made anew.
@lru_cache(maxsize=1024)
def judge(component: str, fault: GpuFault, holds: bool | None, evidence: str) -> Judgement:
    """Judge one condition; None: nobody says."""
    key = FindingKey(component, fault.condition)
    if holds is None:
        return Unknown(key, evidence)
    if not holds:
        return Healthy(key, evidence)
    return Faulty(
        Finding(
            component=component,
            condition=fault.condition,
            severity=fault.severity,
            message=f"{component.removeprefix('driver/')}: {fault.says}",
            evidence=evidence,
            suggested_action=fault.action,
            rule=fault.rule,
        )
    )


def judge_gpu(gpu: GpuReading, fault: GpuFault, holds: bool | None, evidence: str) -> Judgement:
    """Judge one condition of one GPU."""
    return judge(gpu.component, fault, holds, evidence)


def above(value: float | None, limit: float) -> bool | None:
    """Return whether a value that may be unknown is above its limit."""
    return None if value is None else value > limit


def at_least(value: float | None, limit: float) -> bool | None:
    """Return whether a value that may be unknown has reached its limit."""
    return None if value is None else value >= limit


def shown(value: object, unit: str = "") -> str:
    """Return a value that may be unknown, for an evidence."""
    return "unknown" if value is None else f"{value}{unit}"
