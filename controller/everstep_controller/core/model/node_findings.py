"""Node findings: which of the open findings of a node count, and which foretell a failure."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from everstep_common.judging.findings import Mode, Severity
from everstep_controller.core.model.node import FindingOwner, NodeRecord, OpenFinding
from everstep_controller.core.model.policy import NodePolicy

# Conditions that foretell a failure, and whose finding it is. One that is only told as information,
# such as a retraining that a node alone has seen (IbLoneRecoveries), asks for nothing.
PRECURSORS: Mapping[str, FindingOwner] = MappingProxyType(
    {
        "IbErrorsUnlikePeers": FindingOwner.CONTROLLER,
        "GpuMetricsVanished": FindingOwner.AGENT,
        "GpuClocksBelowPeers": FindingOwner.CONTROLLER,
        "GpuBrakedUnlikePeers": FindingOwner.CONTROLLER,
    }
)


def findings_of(
    policy: NodePolicy, node: NodeRecord, owners: Mapping[str, FindingOwner]
) -> Iterator[OpenFinding]:
    """Yield the open findings of a node that are of these conditions and count against it."""
    for held in node.health.findings.values():
        finding = held.finding
        if owners.get(finding.condition) is not held.owner:
            continue
        if held.counts_against_node and not held.late and finding.severity is not Severity.INFO:
            mode = policy.mode_of(finding.condition, finding.mode)
            if mode is not Mode.OBSERVE:
                yield held


def precursor_of(policy: NodePolicy, node: NodeRecord) -> OpenFinding | None:
    """Return the oldest finding of a node that foretells a failure; None for none."""
    found = findings_of(policy, node, PRECURSORS)
    return min(found, key=lambda held: held.since_ns, default=None)
