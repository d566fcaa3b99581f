"""Findings of nodes, raised and cleared."""

from everstep_common.reports import FindingCleared, FindingRaised
from everstep_controller.core.events import Reported
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.core.nodes.health import judge_node, said
from everstep_controller.core.recovery import blame
from everstep_controller.core.turn import Turn


def finding_raised(turn: Turn, event: Reported[FindingRaised]) -> None:
    """Take a finding and judge what it means for its node."""
    report = event.report
    node = turn.state.nodes[event.origin.node]
    key = f"{report.finding.component} {report.finding.condition}"
    since_ns = node.findings[key].since_ns if key in node.findings else event.at_ns
    node.findings[key] = OpenFinding(report.finding, since_ns)
    turn.announce(
        node.name,
        report.finding.condition,
        f"{report.finding.severity.value} on {node.name}: {said(report.finding)}",
    )
    judge_node(turn, node)
    blame.judge_by_late_finding(turn, node)


def finding_cleared(turn: Turn, event: Reported[FindingCleared]) -> None:
    """Close a finding on the evidence of its node."""
    report = event.report
    node = turn.state.nodes[event.origin.node]
    closed = node.findings.pop(f"{report.key.component} {report.key.condition}", None)
    if closed is not None:
        turn.announce(
            node.name,
            f"{report.key.condition}Cleared",
            f"{report.key.condition} is over on {node.name}: {report.evidence}",
        )
        judge_node(turn, node, f"{report.key.condition} of {report.key.component} is over: ")
