"""Findings of nodes, raised and cleared."""

from everstep_controller.core.events import FindingCleared, FindingRaised
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.core.nodes.health import judge_node, said
from everstep_controller.core.recovery import blame
from everstep_controller.core.turn import Turn


def finding_raised(turn: Turn, event: FindingRaised) -> None:
    """Take a finding and judge what it means for its node."""
    node = turn.state.nodes[event.origin.node]
    key = f"{event.finding.component} {event.finding.condition}"
    since_ns = node.findings[key].since_ns if key in node.findings else event.at_ns
    node.findings[key] = OpenFinding(event.finding, since_ns)
    turn.announce(
        node.name,
        event.finding.condition,
        f"{event.finding.severity.value} on {node.name}: {said(event.finding)}",
    )
    judge_node(turn, node)
    blame.judge_by_late_finding(turn, node)


def finding_cleared(turn: Turn, event: FindingCleared) -> None:
    """Close a finding on the evidence of its node."""
    node = turn.state.nodes[event.origin.node]
    closed = node.findings.pop(f"{event.key.component} {event.key.condition}", None)
    if closed is not None:
        turn.announce(
            node.name,
            f"{event.key.condition}Cleared",
            f"{event.key.condition} is over on {node.name}: {event.evidence}",
        )
        judge_node(turn, node, f"{event.key.condition} of {event.key.component} is over: ")
