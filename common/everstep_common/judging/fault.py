"""Fault: what is wrong with a component, and how it becomes a judgement."""

from dataclasses import dataclass

from everstep_common.judging.findings import Finding, FindingKey, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Fault of a component whose condition holds. ``rule`` has no numbers that change."""

    message: str
    rule: str
    severity: Severity = Severity.DEGRADED
    action: SuggestedAction = SuggestedAction.WATCH


def judged(component: str, condition: str, evidence: str, fault: Fault | None) -> Faulty | Healthy:
    """Return the judgement: healthy where there is no fault."""
    if fault is None:
        return Healthy(FindingKey(component, condition), evidence)
    return Faulty(
        Finding(
            component=component,
            condition=condition,
            severity=fault.severity,
            message=fault.message,
            evidence=evidence,
            suggested_action=fault.action,
            rule=fault.rule,
        )
    )
