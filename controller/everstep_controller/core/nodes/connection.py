"""Connection of a node: what its agent says when its stream opens."""

from everstep_controller.core.events import NodeConnected
from everstep_controller.core.jobs import identity, membership, outstanding
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.nodes import injections
from everstep_controller.core.nodes.findings import replace_agent_findings
from everstep_controller.core.nodes.health import judge_node, move_node
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.turn import Turn


def take_hello(turn: Turn, event: NodeConnected) -> None:
    """Take what an agent says of its node when its stream opens."""
    node = turn.state.nodes.setdefault(event.node, NodeRecord(event.node, since_ns=turn.now_ns))
    turn.nodes_changed.add(node.name)
    node.absent = False
    rebooted = bool(node.boot_id) and node.boot_id != event.boot_id
    node.connected, node.silent_since_ns = True, 0
    node.silent_to, node.confirmation = [], None
    node.boot_id, node.agent_version = event.boot_id, event.agent_version
    if node.outbox and node.outbox != event.outbox:
        turn.state.outboxes.pop(node.outbox, None)
    node.outbox = event.outbox
    node.host, node.domain, node.inventory = event.host, event.domain, event.inventory
    node.bulk_address, node.liveness_address = event.bulk_address, event.liveness_address
    turn.drop_timer(f"stream/{node.name}")
    turn.drop_timer(f"confirm/{node.name}")
    membership.node_back(turn, node, {} if rebooted else {seen.job: seen for seen in event.jobs})
    identity.tell_late_launchers_on(turn, node.name, () if rebooted else event.jobs)
    replace_agent_findings(node, event.open_findings, turn.now_ns)
    reason = "its agent connected after a reboot" if rebooted else "its agent connected"
    move_node(turn, node, NodeEvent.CONNECTED, reason)
    judge_node(turn, node)
    injections.expire_orders(turn, node)
    turn.actions.extend(outstanding.for_node(turn.state, node))
    if node.usable:
        membership.capacity_changed(turn)
