"""Findings and stamps between the wire and the words that agent and controller share."""

from everstep_common.clock import Stamp
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_proto.generated import fleet_pb2


class WireError(ValueError):
    """The other side sent a message that cannot be used; one sentence says why."""


_SEVERITIES = {
    Severity.INFO: fleet_pb2.SEVERITY_INFO,
    Severity.DEGRADED: fleet_pb2.SEVERITY_DEGRADED,
    Severity.FATAL: fleet_pb2.SEVERITY_FATAL,
}
_ACTIONS = {
    SuggestedAction.NONE: fleet_pb2.SUGGESTED_ACTION_NONE,
    SuggestedAction.WATCH: fleet_pb2.SUGGESTED_ACTION_WATCH,
    SuggestedAction.RESTART_JOB: fleet_pb2.SUGGESTED_ACTION_RESTART_JOB,
    SuggestedAction.RESET_DEVICE: fleet_pb2.SUGGESTED_ACTION_RESET_DEVICE,
    SuggestedAction.REBOOT_NODE: fleet_pb2.SUGGESTED_ACTION_REBOOT_NODE,
    SuggestedAction.REPAIR_HARDWARE: fleet_pb2.SUGGESTED_ACTION_REPAIR_HARDWARE,
}
_MODES = {
    Mode.OBSERVE: fleet_pb2.MODE_OBSERVE,
    Mode.ADVISE: fleet_pb2.MODE_ADVISE,
    Mode.ENFORCE: fleet_pb2.MODE_ENFORCE,
}
_SEVERITY_OF = {wire: severity for severity, wire in _SEVERITIES.items()}
_ACTION_OF = {wire: action for action, wire in _ACTIONS.items()}
_MODE_OF = {wire: mode for mode, wire in _MODES.items()}


def stamp_to_wire(stamp: Stamp) -> fleet_pb2.Stamp:
    """Return the wire form of a stamp."""
    return fleet_pb2.Stamp(boot_id=stamp.boot_id, boot_ns=stamp.boot_ns, wall_ns=stamp.wall_ns)


def stamp_from_wire(wire: fleet_pb2.Stamp) -> Stamp:
    """Return a stamp. Raises WireError when it names no boot."""
    if not wire.boot_id:
        raise WireError("a stamp without boot_id")
    return Stamp(wire.boot_id, wire.boot_ns, wire.wall_ns)


def finding_to_wire(finding: Finding, since: Stamp) -> fleet_pb2.Finding:
    """Return the wire form of a finding that began at ``since``."""
    return fleet_pb2.Finding(
        component=finding.component,
        condition=finding.condition,
        severity=_SEVERITIES[finding.severity],
        message=finding.message,
        evidence=finding.evidence,
        suggested_action=_ACTIONS[finding.suggested_action],
        rule=finding.rule,
        since=stamp_to_wire(since),
        injected=finding.injected,
        mode=_MODES[finding.mode],
    )


def finding_from_wire(wire: fleet_pb2.Finding) -> Finding:
    """Return a finding. Raises WireError without component, condition, severity or action."""
    if not wire.component or not wire.condition:
        raise WireError("a finding needs a component and a condition")
    severity, action = _SEVERITY_OF.get(wire.severity), _ACTION_OF.get(wire.suggested_action)
    if severity is None or action is None:
        raise WireError(f"finding {wire.condition}: unknown severity or suggested action")
    return Finding(
        component=wire.component,
        condition=wire.condition,
        severity=severity,
        message=wire.message,
        evidence=wire.evidence,
        suggested_action=action,
        rule=wire.rule,
        injected=wire.injected,
        mode=_MODE_OF.get(wire.mode, Mode.ENFORCE),
    )
