"""Liveness of nodes: connections, and silences that peers and streams are asked about."""

from collections.abc import Mapping, Sequence

from everstep_controller.core import events
from everstep_controller.core.actions import ConfirmSilence
from everstep_controller.core.events import (
    NodeConnected,
    NodeDisconnected,
    PeerJudged,
    PeerReported,
)
from everstep_controller.core.model.node import Confirmation, NodeRecord, NodeState
from everstep_controller.core.model.state import CONTROLLER
from everstep_controller.core.nodes import health, injections, lifecycle
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind, Turn

# How many other peers must confirm a silence.
CONFIRMERS = 2


# --- events: who is heard, and by whom -----------------------------------------------------------


def record_hello(turn: Turn, node: NodeRecord, event: NodeConnected) -> None:
    """Take what an agent says of its node when its stream opens."""
    turn.mark_node(node.name)
    rebooted = has_rebooted(node, event)
    node.absent, node.connected, node.silent_since_ns = False, True, 0
    node.silent_to, node.confirmation = [], None
    node.boot_id, node.agent_version = event.boot_id, event.agent_version
    if node.outbox and node.outbox != event.outbox:
        turn.state.outboxes.pop(node.outbox, None)
    node.outbox = event.outbox
    node.host, node.domain, node.inventory = event.host, event.domain, event.inventory
    node.bulk_address, node.liveness_address = event.bulk_address, event.liveness_address
    turn.drop_timer(f"{TimerKind.STREAM}/{node.name}")
    turn.drop_timer(f"{TimerKind.CONFIRM}/{node.name}")
    health.replace_agent_findings(node, event.open_findings, turn.now_ns)
    injections.expire_orders(turn, node)
    node.blamed = ""
    node.news.connected = (
        "its agent connected after a reboot" if rebooted else "its agent connected"
    )


def has_rebooted(node: NodeRecord, event: NodeConnected) -> bool:
    """Return whether a node has started anew since it was heard last."""
    return bool(node.boot_id) and node.boot_id != event.boot_id


def node_disconnected(turn: Turn, event: NodeDisconnected) -> None:
    """A stream ended: peers are asked at once, and the stream alone is believed only later."""
    node = turn.state.nodes[event.node]
    if node.gone or not node.connected:
        return
    node.connected = False
    node.silent_since_ns = node.silent_since_ns or turn.now_ns
    node.news.silent = True
    turn.mark_node(node.name)
    turn.set_timer(f"{TimerKind.STREAM}/{node.name}", turn.state.settings.stream_silence_ns)


def peer_reported(turn: Turn, event: PeerReported) -> None:
    """A node lost sight of a peer, or sees it again."""
    node = turn.state.nodes.get(event.peer)
    if node is None or node.gone or node.state is NodeState.MAINTENANCE:
        return
    if not event.silent:
        if event.node in node.silent_to:
            node.silent_to.remove(event.node)
            turn.mark_node(node.name)
        if not node.silent_to and node.connected:
            node.silent_since_ns = 0
        return
    if event.node not in node.silent_to:
        node.silent_to.append(event.node)
    node.silent_since_ns = node.silent_since_ns or turn.now_ns
    node.news.silent, node.news.reporter = True, event.node
    turn.mark_node(node.name)


def peer_judged(turn: Turn, event: PeerJudged) -> None:
    """Take the word of a peer that was asked."""
    node = turn.state.nodes.get(event.peer)
    waiting = node.confirmation if node else None
    if node is None or waiting is None or waiting.id != event.confirm_id:
        return
    if event.node in waiting.asked:
        waiting.verdicts[event.node] = event.alive
        turn.mark_node(node.name)


def silence_due(turn: Turn, name: str) -> None:
    """A stream has stayed closed for the whole limit, or peers have had their time to answer."""
    turn.mark_node(name)


# --- reconciliation: who is lost -----------------------------------------------------------------


def reconcile_node(turn: Turn, node: NodeRecord) -> None:
    """Judge a silence by the peers that were asked or by the stream; ask about a new one."""
    waiting = node.confirmation
    if waiting is not None and (
        len(waiting.verdicts) == len(waiting.asked)
        or not turn.has_timer(TimerKind.CONFIRM, node.name)
    ):
        _decide_silence(turn, node, waiting)
    away = not (node.connected or node.gone)
    if away and not turn.has_timer(TimerKind.STREAM, node.name):
        _judge_stream(turn, node)
    reporter, asked = node.news.reporter, node.news.silent
    node.news.silent, node.news.reporter = False, ""
    if asked and not node.gone and node.state is not NodeState.MAINTENANCE:
        _ask_peers(turn, node, reporter)


def _ask_peers(turn: Turn, node: NodeRecord, reporter: str) -> None:
    """Ask two other nodes whether this one is alive; its domain's first, the reporter last."""
    if node.confirmation is not None or not node.liveness_address:
        return
    able = [
        peer
        for peer in turn.state.nodes.values()
        if peer.connected and peer.name != node.name and not peer.silent_to
    ]
    able.sort(key=lambda peer: (peer.name == reporter, peer.domain != node.domain, peer.name))
    asked = [peer.name for peer in able[:CONFIRMERS]]
    if not asked:
        return
    number = f"{node.name}/silent/{turn.state.event_count}"
    node.confirmation = Confirmation(number, asked)
    turn.actions.extend(confirmation_order(node, name) for name in asked)
    turn.set_timer(f"{TimerKind.CONFIRM}/{node.name}", turn.state.settings.confirm_timeout_ns)


def _decide_silence(turn: Turn, node: NodeRecord, waiting: Confirmation) -> None:
    """Judge a silence by the words of peers that came in time."""
    node.confirmation = None
    turn.drop_timer(f"{TimerKind.CONFIRM}/{node.name}")
    if node.gone:
        return
    if any(waiting.verdicts.values()):
        node.silent_to = []
        if node.connected:
            node.silent_since_ns = 0
        return
    if not waiting.verdicts or _doubts_itself(turn):
        # Nobody could say: the stream decides, or the next report.
        node.silent_to = []
        return
    peers = " and ".join(sorted(waiting.verdicts))
    _lose_node(turn, node, f"silent, and {peers} could not reach it either")


def _judge_stream(turn: Turn, node: NodeRecord) -> None:
    """Give up a node whose stream has been closed for long, unless the controller is to blame."""
    if _doubts_itself(turn):
        turn.set_timer(f"{TimerKind.STREAM}/{node.name}", turn.state.settings.stream_silence_ns)
        return
    _lose_node(turn, node, "its stream has been closed for too long")


def _lose_node(turn: Turn, node: NodeRecord, reason: str) -> None:
    """Declare a node lost."""
    node.connected, node.confirmation = False, None
    turn.mark_node(node.name)
    turn.drop_timer(f"{TimerKind.STREAM}/{node.name}")
    if node.state is NodeState.MAINTENANCE:
        _away(turn, node)
        return
    lifecycle.move_node(turn, node, NodeEvent.SILENT, reason)


def _away(turn: Turn, node: NodeRecord) -> None:
    """Expect nothing more of a node that fell silent while somebody works on it."""
    node.absent = True
    turn.announce(node.name, "NodeAway", f"{node.name} is away, as may be: {node.reason}")
    turn.mark_node(node.name)


def _doubts_itself(turn: Turn) -> bool:
    """Return whether so much of the fleet is silent that the fault is probably here."""
    state, settings = turn.state, turn.state.settings
    expected = (node for node in state.nodes.values() if node.state is not NodeState.MAINTENANCE)
    known = [node for node in expected if not node.gone]
    silent = [node for node in known if not node.connected or node.silent_to]
    if len(silent) <= 1 or len(silent) <= settings.fleet_silence_ratio * len(known):
        state.self_suspect_since_ns = 0
        return False
    if not state.self_suspect_since_ns:
        state.self_suspect_since_ns = turn.now_ns
        turn.announce(
            CONTROLLER,
            "ControllerSuspectsItself",
            f"{len(silent)} of {len(known)} nodes are silent at once: none is judged lost yet",
        )
    return turn.now_ns - state.self_suspect_since_ns < settings.fleet_silence_wait_ns


# --- questions to peers --------------------------------------------------------------------------


def watched_peers(
    nodes: Sequence[str], domain_of: Mapping[str, str], count: int = 3
) -> dict[str, tuple[str, ...]]:
    """Return for every node the next ones on a ring of all nodes that is sorted by domain.

    So most peers are neighbours, every node is watched, and the loss of a whole domain is seen from
    outside it.
    """
    ring = sorted(nodes, key=lambda node: (domain_of.get(node, ""), node))
    reach = range(1, min(count, len(ring) - 1) + 1)
    return {
        node: tuple(ring[(at + offset) % len(ring)] for offset in reach)
        for at, node in enumerate(ring)
    }


def confirmation_order(silent: NodeRecord, node: str) -> ConfirmSilence:
    """Return the question to a node about a silent peer."""
    return ConfirmSilence(
        id=silent.confirmation.id if silent.confirmation else "",
        node=node,
        reason=f"{silent.name} is silent",
        peer=silent.name,
        peer_address=silent.liveness_address,
    )


HANDLERS: Handlers = {
    events.NodeDisconnected: node_disconnected,
    events.PeerReported: peer_reported,
    events.PeerJudged: peer_judged,
}
TIMERS: Timers = {
    TimerKind.STREAM: silence_due,
    TimerKind.CONFIRM: silence_due,
}
