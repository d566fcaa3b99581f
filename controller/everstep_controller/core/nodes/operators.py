"""Operators' orders about nodes: isolate, drain, release."""

from everstep_controller.core.events import OperatorDrained, OperatorIsolated, OperatorReleased
from everstep_controller.core.model.node import OPERATOR
from everstep_controller.core.nodes import claims
from everstep_controller.core.nodes.health import move_node
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.turn import Turn


def operator_isolated(turn: Turn, event: OperatorIsolated) -> None:
    """Put an operator's claim on a node."""
    node = turn.state.nodes[event.node]
    claims.claim(turn, node, OPERATOR, f"{event.operator}: {event.reason}")


def operator_drained(turn: Turn, event: OperatorDrained) -> None:
    """Keep new ranks from a node; what runs there is moved as planned work."""
    node = turn.state.nodes[event.node]
    claims.drain(turn, node, OPERATOR, f"{event.operator}: {event.reason}")


def operator_released(turn: Turn, event: OperatorReleased) -> None:
    """Remove an operator's claim, and take the operator's word that the node was repaired."""
    node = turn.state.nodes[event.node]
    reason = f"{event.operator}: {event.reason}" if event.reason else event.operator
    claims.unclaim(turn, node, OPERATOR, reason)
    for held in node.findings.values():
        held.accepted_by = event.operator
    move_node(turn, node, NodeEvent.REPAIRED, f"repaired, says {reason}")
