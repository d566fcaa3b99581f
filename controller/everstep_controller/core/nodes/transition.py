"""Transition of a node through its lifecycle table: its new state, and the announcement of it."""

from everstep_controller.core.model.node import AUTOMATION, NodeRecord
from everstep_controller.core.nodes import claims, orders
from everstep_controller.core.nodes.lifecycle import NodeEffect, NodeEvent, step
from everstep_controller.core.turn import Turn


def enter_state(
    turn: Turn, node: NodeRecord, event: NodeEvent, reason: str
) -> tuple[NodeEffect, ...]:
    """Change a node's state, check it and claim it as the table says; return all effects."""
    before, next_step = node.state, step(node.state, event)
    if next_step.to is not before:
        turn.mark_node(node.name)
        node.state, node.since_ns, node.reason = next_step.to, turn.now_ns, reason
        turn.announce(
            node.name,
            f"Node{next_step.to.value.title()}",
            f"{node.name} is {next_step.to.value}: {reason}",
        )
    for effect in next_step.effects:
        if effect is NodeEffect.CHECK:
            node.checks += 1
            turn.actions.append(orders.check(node))
        elif effect in (NodeEffect.CLAIM, NodeEffect.CLAIM_DEAD):
            claims.claim(turn, node, AUTOMATION, reason, dead=effect is NodeEffect.CLAIM_DEAD)
    return next_step.effects
