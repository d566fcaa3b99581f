"""Slow evidence: which findings of a node can be why its ranks make their job wait.

That ranks are slow is their job's own word. So a finding counts only where it fits in time: one
with which the same ranks were as fast as their peers for long is not why they are slow now, and
neither is one that came long after they had become so. And what many nodes of the job have does not
make one of them slower than the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import FindingOwner, NodeRecord, OpenFinding
from everstep_controller.core.model.node_findings import findings_of
from everstep_controller.core.model.slowness import JobSlowness, SlowPart
from everstep_controller.core.model.state import State
from everstep_controller.core.model.windows import shown
from everstep_controller.core.nodes import findings
from everstep_controller.core.recovery import pair_tests

# Findings of the controller by which it compares what agents read of hardware.
JUDGED = frozenset({"GpuClocksBelowPeers", "GpuBrakedUnlikePeers", "GpuPcieBelowPeers"})

# What makes a node slow for as long as it is open, and what a job cannot make its agent find by
# what its ranks tell. Of single events, such as one corrected error, no step takes longer.
EVIDENCE = frozenset(
    {
        *("GpuClocksLow", "GpuHardwareSlowdown", "GpuPowerBrake", "GpuThermalSlowdown"),
        *("GpuTemperatureHigh", "GpuPowerLimitsDiffer", "GpuPcieReplays", "GpuPcieWidth"),
        *("GpuPcieGeneration", "GpuEccCorrectedRate", "GpuEccCorrectedStorm", "NvlinkDown"),
        *("NvlinkDegraded", "NvlinkErrors", "NvlinkLoneErrors", "NvlinkCrc", "XidDegraded"),
        *("AcceleratorPcieNarrow", "AcceleratorTooHot", "AcceleratorEccCorrectedRate"),
        *("PcieErrorStorm", "LinkSlow", "LinkDropped", "LinkFlapping", "LinkDown"),
        *("LinkHalfDuplex", "NicLinkFlapping", "BondDegraded", "HcaPcieNarrow", "HcaTooHot"),
        *("CpuThermalThrottle", "CpuTooHot", "CpuGovernor", "ClockSourceSlow"),
    }
)

# The same of the controller: it compares what agents read of hardware, and what fixed work takes on
# nodes without ranks, and no word of a job.
_SLOW_OWNERS: Mapping[str, FindingOwner] = MappingProxyType(
    dict.fromkeys(EVIDENCE, FindingOwner.AGENT)
    | dict.fromkeys(JUDGED, FindingOwner.CONTROLLER)
    | {pair_tests.PAIR_TEST_SLOW.name: FindingOwner.CORE}
)

# The longest time over which agents count before they find one of these: it comes as late. And for
# so long a finding may be open before it costs something.
APART_NS = 3600 * 10**9
# Of so many nodes, this share has a cause in common: of a job as for slow ranks of a role, of a
# failure domain as for slow places.
_NODES_MIN, _OF_JOB, _OF_DOMAIN = 3, 0.2, 0.6


@dataclass(frozen=True, slots=True)
class SlowEvidence:
    """Finding that makes a node slow, in words; "" for none."""

    found: str = ""
    # What is open as well, and why it is not what makes these ranks slow.
    doubted: str = ""
    since_ns: int = 0


def found_words(held: OpenFinding) -> str:
    """Return who has found what, in words."""
    finding = held.finding
    sentence = f"found {finding.condition}: {findings.finding_sentence(finding)}"
    if held.owner is FindingOwner.AGENT:
        return f"its agent {sentence}"
    if finding.condition == pair_tests.PAIR_TEST_SLOW.name:
        return f"a pair test {sentence}"
    return f"the controller {sentence}" + (f" ({finding.evidence})" if finding.evidence else "")


def evidence_of(state: State, node: NodeRecord, job: JobRecord, part: SlowPart) -> SlowEvidence:
    """Return what is found on a node that can be why a part of a job is slow there.

    What is over for the moment, and kept open because it comes and goes, is no reason to begin.
    """
    doubted = ""
    for held in findings_of(state.policy_of(node.name), node, _SLOW_OWNERS):
        if findings.is_well_now(node, held):
            continue
        why_not = _untimely(held, job.slow, part) or shared_by(state, node, job, held)
        if not why_not:
            return SlowEvidence(found_words(held), since_ns=held.since_ns)
        doubted = doubted or f"{found_words(held)}, {why_not}"
    return SlowEvidence(doubted=doubted)


def is_evidence_open(state: State, node: NodeRecord, since_ns: int) -> bool:
    """Return whether something is open that makes a node slow, and began at a time or later."""
    return any(
        held.since_ns >= since_ns
        for held in findings_of(state.policy_of(node.name), node, _SLOW_OWNERS)
    )


def _untimely(held: OpenFinding, slow: JobSlowness, part: SlowPart) -> str:
    """Return that a finding does not fit the slowness of a part in time; "" where it does."""
    # Parts of an older version have no times.
    began_ns = part.began_ns or slow.judged_ns
    fast_ns = began_ns - max(held.since_ns, part.compared_ns or began_ns)
    if fast_ns > APART_NS:
        until = shown(began_ns)
        return f"since {shown(held.since_ns)}, and as fast as its peers with that until {until}"
    measured = held.finding.condition == pair_tests.PAIR_TEST_SLOW.name
    if not measured and held.since_ns > began_ns + APART_NS:
        return f"since {shown(held.since_ns)}, and slow without that since {shown(began_ns)}"
    return ""


def shared_by(state: State, node: NodeRecord, job: JobRecord, held: OpenFinding) -> str:
    """Return that many nodes of a job have what an agent has found on one; "" where few have."""
    if held.owner is not FindingOwner.AGENT:  # it was compared with peers
        return ""
    others = [
        state.nodes[name]
        for name in job.generation.members
        if name != node.name and name in state.nodes
    ]
    near = [one for one in others if node.spec.domain and one.spec.domain == node.spec.domain]
    for peers, share, place in ((near, _OF_DOMAIN, node.spec.domain), (others, _OF_JOB, job.name)):
        having = sum(_has(one, held) for one in peers)
        if len(peers) >= _NODES_MIN and having >= max(2, share * len(peers)):
            return f"as on {having} of the {len(peers)} other nodes of {place}"
    return ""


def _has(node: NodeRecord, held: OpenFinding) -> bool:
    """Return whether a node's agent has found the same, open now."""
    wanted = (held.finding.condition, held.owner)
    return any(
        (one.finding.condition, one.owner) == wanted for one in node.health.findings.values()
    )
