"""Accounting of node days: what state a node was in for how long is counted as it changes."""

from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.turn import Reconciliation


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Count the time of a node whose state, isolation or findings are others than they were."""
    days, found = node.days, node.health.findings
    state, isolated = node.state.value, bool(node.isolation.claims)
    same = days.since_ns and (days.state, days.isolated) == (state, isolated)
    if same and len(days.open) == len(found) and all(key in found for key in days.open):
        return  # most nodes, at most events
    days.go_on(turn.now_ns, state, isolated=isolated)
    for key in found.keys() - set(days.open):
        days.raise_finding(found[key].finding.condition, turn.now_ns)
    days.open = sorted(found)
