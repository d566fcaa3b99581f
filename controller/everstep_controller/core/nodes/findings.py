"""Findings of nodes, raised and cleared: each by its owner, the node's agent or the controller."""

from collections.abc import Iterable

from everstep_common.judging.findings import Finding, FindingKey
from everstep_common.reports import FindingCleared, FindingRaised
from everstep_controller.core.events import Reported, VerdictChanged
from everstep_controller.core.model.node import FindingOwner, NodeRecord, OpenFinding
from everstep_controller.core.nodes.health import judge_node, said
from everstep_controller.core.turn import Turn


def finding_raised(turn: Turn, event: Reported[FindingRaised]) -> None:
    """Take a finding of an agent and judge what it means for its node."""
    node = turn.state.nodes[event.origin.node]
    _raise(turn, node, OpenFinding(event.report.finding, event.at_ns, FindingOwner.AGENT))


def finding_cleared(turn: Turn, event: Reported[FindingCleared]) -> None:
    """Close a finding of an agent on the evidence of its node."""
    node = turn.state.nodes[event.origin.node]
    _clear(turn, node, _name(FindingOwner.AGENT, event.report.key), event.report)


def verdict_changed(turn: Turn, event: VerdictChanged) -> None:
    """Take what a judge of the controller finds about a node, or finds over."""
    node = turn.state.nodes.get(event.node)
    if node is None:
        return
    if event.finding is not None:
        _raise(turn, node, OpenFinding(event.finding, turn.now_ns))
    else:
        _clear(turn, node, _name(FindingOwner.CONTROLLER, event.key), event)


def replace_agent_findings(node: NodeRecord, findings: Iterable[Finding], now_ns: int) -> None:
    """Have exactly these findings of its agent open on a node; those of the controller stay."""
    kept = {k: held for k, held in node.findings.items() if held.owner is not FindingOwner.AGENT}
    for finding in findings:
        name = _name(FindingOwner.AGENT, finding.key)
        fresh = OpenFinding(finding, now_ns, FindingOwner.AGENT)
        kept[name] = node.findings.get(name, fresh)
    node.findings = kept


# -------------------------------------------------------------------------------------------------


def _name(owner: FindingOwner, key: FindingKey) -> str:
    return f"{owner.value} {key.component} {key.condition}"


def _raise(turn: Turn, node: NodeRecord, found: OpenFinding) -> None:
    finding, name = found.finding, _name(found.owner, found.finding.key)
    known = node.findings.get(name)
    if known is not None:
        found.since_ns = known.since_ns
    node.findings[name] = found
    turn.announce(
        node.name,
        finding.condition,
        f"{finding.severity.value} on {node.name}: {said(finding)}",
    )
    judge_node(turn, node)
    turn.mark_node(node.name)


def _clear(
    turn: Turn, node: NodeRecord, name: str, cleared: FindingCleared | VerdictChanged
) -> None:
    if node.findings.pop(name, None) is None:
        return
    condition = cleared.key.condition
    turn.announce(
        node.name,
        f"{condition}Cleared",
        f"{condition} is over on {node.name}: {cleared.evidence}",
    )
    judge_node(turn, node, f"{condition} of {cleared.key.component} is over: ")
