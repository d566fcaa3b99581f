"""Connection of a node: what its agent says when its stream opens."""

from everstep_controller.core.events import NodeConnected
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.nodes import injections
from everstep_controller.core.nodes.findings import replace_agent_findings
from everstep_controller.core.nodes.health import judge_node, move_node
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.turn import TimerKind, Turn


def record_hello(turn: Turn, node: NodeRecord, event: NodeConnected) -> None:
    """Take what an agent says of its node when its stream opens."""
    turn.mark_node(node.name)
    node.absent = False
    rebooted = has_rebooted(node, event)
    node.connected, node.silent_since_ns = True, 0
    node.silent_to, node.confirmation = [], None
    node.boot_id, node.agent_version = event.boot_id, event.agent_version
    if node.outbox and node.outbox != event.outbox:
        turn.state.outboxes.pop(node.outbox, None)
    node.outbox = event.outbox
    node.host, node.domain, node.inventory = event.host, event.domain, event.inventory
    node.bulk_address, node.liveness_address = event.bulk_address, event.liveness_address
    turn.drop_timer(f"{TimerKind.STREAM}/{node.name}")
    turn.drop_timer(f"{TimerKind.CONFIRM}/{node.name}")
    replace_agent_findings(node, event.open_findings, turn.now_ns)
    reason = "its agent connected after a reboot" if rebooted else "its agent connected"
    move_node(turn, node, NodeEvent.CONNECTED, reason)
    judge_node(turn, node)
    injections.expire_orders(turn, node)


def has_rebooted(node: NodeRecord, event: NodeConnected) -> bool:
    """Return whether a node has started anew since it was heard last."""
    return bool(node.boot_id) and node.boot_id != event.boot_id
