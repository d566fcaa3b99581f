"""Unanswered orders: an agent that is connected, and does not do what it is ordered."""

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import (
    Finding,
    FindingKey,
    Mode,
    Severity,
    SuggestedAction,
)
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.nodes import findings
from everstep_controller.core.turn import Turn

ORDERS_UNANSWERED = Condition(
    name="OrdersUnanswered",
    component="agent/orders",
    meaning="the node's agent is connected and answers pings, and has not done what it was "
    "ordered, or its ranks do not get as far as others; it counts as gone for that job",
    source="orders that were given twice, for 60 s (answer_timeout_s); checks that were, for 180 s "
    "(check_timeout_s); the times of jobs, restore_timeout_s and holdings_timeout_s",
    clears_when="its agent carries out an order, or connects anew",
    mode=Mode.ADVISE,
)


def record_unanswered(turn: Turn, node: NodeRecord, message: str) -> None:
    """Open the finding that an agent carries out no orders, in a sentence about what is missing."""
    finding = Finding(
        component=ORDERS_UNANSWERED.component,
        condition=ORDERS_UNANSWERED.name,
        mode=ORDERS_UNANSWERED.mode,
        severity=Severity.DEGRADED,
        message=message,
        suggested_action=SuggestedAction.WATCH,
        rule="see 'journalctl -u everstep-agent' on the node, and restart its agent: 'systemctl "
        "restart everstep-agent' costs no job a step; cleared when the agent carries out an order",
    )
    if not findings.has_finding(node, finding.key):
        findings.raise_finding(turn, node, finding)


def record_answer(turn: Turn, node: NodeRecord, evidence: str) -> None:
    """Close it: an agent has done something that it was ordered."""
    key = FindingKey(ORDERS_UNANSWERED.component, ORDERS_UNANSWERED.name)
    findings.clear_finding(turn, node, key, evidence)
