"""Liveness of nodes: connections, and silences that peers and streams are asked about."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice

from everstep_common.reports import TcpAnswer
from everstep_controller.core import events
from everstep_controller.core.actions import ConfirmSilence
from everstep_controller.core.events import (
    AgentAnswered,
    AgentLeaving,
    NodeConnected,
    NodeDisconnected,
    PeerJudged,
    PeerReported,
)
from everstep_controller.core.model.node import Confirmation, NodeRecord, NodeState
from everstep_controller.core.model.state import CONTROLLER, State, note_hearing
from everstep_controller.core.nodes import health, lifecycle
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# How many other peers must confirm a silence.
CONFIRMERS = 2

_NO_ANSWER = frozenset({TcpAnswer.SILENT, TcpAnswer.NOT_ASKED})


# --- events: who is heard, and by whom -----------------------------------------------------------


def record_hello(turn: Turn, node: NodeRecord, event: NodeConnected) -> None:
    """Take what an agent says of its node when its stream opens."""
    turn.mark_node(node.name)
    rebooted = has_rebooted(node, event)
    forget_stream(turn.state, node)
    end_confirmation(turn.state, node)
    node.absent, node.connected, node.silent_since_ns = False, True, 0
    node.boot_id, node.agent_version = event.boot_id, event.agent_version
    if node.outbox and node.outbox != event.outbox:
        turn.state.outboxes.pop(node.outbox, None)
    node.outbox = event.outbox
    node.host, node.domain, node.inventory = event.host, event.domain, event.inventory
    node.bulk_address, node.liveness_address = event.bulk_address, event.liveness_address
    note_hearing(turn.state, node)
    turn.drop_timer(f"{TimerKind.STREAM}/{node.name}")
    turn.drop_timer(f"{TimerKind.CONFIRM}/{node.name}")
    health.replace_agent_findings(node, event.open_findings, turn.now_ns)
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
    note_hearing(turn.state, node)
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
            note_hearing(turn.state, node)
            turn.mark_node(node.name)
        if not node.silent_to and node.connected:
            node.silent_since_ns = 0
        return
    if event.node not in node.silent_to:
        node.silent_to.append(event.node)
        note_hearing(turn.state, node)
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
        waiting.verdicts[event.node] = event.udp or event.tcp not in _NO_ANSWER
        _drop_question(turn.state, event.node, node.name)
        turn.mark_node(node.name)


def agent_answered(turn: Turn, event: AgentAnswered) -> None:
    """An agent's event loop answered on its stream: whatever peers say, it is there."""
    node = turn.state.nodes.get(event.node)
    if node is None or node.gone or not node.connected:
        return
    end_confirmation(turn.state, node)
    turn.drop_timer(f"{TimerKind.CONFIRM}/{node.name}")
    _believe_stream(turn.state, node)
    node.silent_since_ns = 0
    turn.mark_node(node.name)


def agent_leaving(turn: Turn, event: AgentLeaving) -> None:
    """An agent ends as was asked of it: people hear of it."""
    node = turn.state.nodes.get(event.node)
    if node is not None and not node.gone:
        turn.announce(node.name, "AgentLeaving", f"the agent of {node.name} ends: {event.reason}")


def postpone_verdicts(turn: Turn, duration_ns: int) -> None:
    """Judge no silence by a time in which the controller heard nobody."""
    kinds = (TimerKind.STREAM, TimerKind.CONFIRM)
    for timer in [one for one in turn.state.timers if one.partition("/")[0] in kinds]:
        remaining_ns = turn.state.timers[timer] + duration_ns - turn.now_ns
        turn.set_timer(timer, max(0, remaining_ns))


def silence_due(turn: Turn, name: str) -> None:
    """A stream has stayed closed for the whole limit, or peers have had their time to answer."""
    turn.mark_node(name)


# --- reconciliation: who is lost -----------------------------------------------------------------


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
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


def _ask_peers(turn: Reconciliation, node: NodeRecord, reporter: str) -> None:
    """Ask two other nodes whether this one is alive; its domain's first, the reporter last."""
    if node.confirmation is not None or not node.liveness_address:
        return
    asked = _peers_to_ask(turn.state, node, reporter)
    if not asked:
        return
    number = f"{node.name}/silent/{turn.state.event_count}"
    node.confirmation = Confirmation(number, asked)
    for name in asked:
        turn.state.nodes[name].questions.append(node.name)
    turn.order(*(confirmation_order(node, name) for name in asked))
    turn.set_timer(f"{TimerKind.CONFIRM}/{node.name}", turn.state.settings.confirm_timeout_ns)


def _peers_to_ask(state: State, node: NodeRecord, reporter: str) -> list[str]:
    near = state.heard.get(node.domain, [])
    far = (names for domain, names in state.heard.items() if domain != node.domain)
    heard = (name for name in chain(near, chain.from_iterable(far)) if name != node.name)
    # One more than are asked: one of them may be the reporter.
    able = list(islice(heard, CONFIRMERS + 1))
    others = [name for name in able if name != reporter]
    return [*others, *(name for name in able if name == reporter)][:CONFIRMERS]


def _decide_silence(turn: Reconciliation, node: NodeRecord, waiting: Confirmation) -> None:
    """Judge a silence by the words of peers that came in time."""
    end_confirmation(turn.state, node)
    turn.drop_timer(f"{TimerKind.CONFIRM}/{node.name}")
    if node.gone:
        return
    if any(waiting.verdicts.values()):
        _believe_stream(turn.state, node)
        if node.connected:
            node.silent_since_ns = 0
        return
    if not waiting.verdicts or _doubts_itself(turn):
        # Nobody could say: the stream decides, or the next report.
        _believe_stream(turn.state, node)
        return
    peers = " and ".join(sorted(waiting.verdicts))
    _lose_node(turn, node, f"silent, and {peers} could not reach it either")


def _believe_stream(state: State, node: NodeRecord) -> None:
    node.silent_to = []
    note_hearing(state, node)


def _judge_stream(turn: Reconciliation, node: NodeRecord) -> None:
    """Give up a node whose stream has been closed for long, unless the controller is to blame."""
    if _doubts_itself(turn):
        turn.set_timer(f"{TimerKind.STREAM}/{node.name}", turn.state.settings.stream_silence_ns)
        return
    _lose_node(turn, node, "its stream has been closed for too long")


def _lose_node(turn: Reconciliation, node: NodeRecord, reason: str) -> None:
    """Declare a node lost."""
    node.connected = False
    note_hearing(turn.state, node)
    end_confirmation(turn.state, node)
    turn.mark_node(node.name)
    turn.drop_timer(f"{TimerKind.STREAM}/{node.name}")
    if node.state is NodeState.MAINTENANCE:
        _away(turn, node)
        return
    lifecycle.move_node(turn, node, NodeEvent.SILENT, reason)


def _away(turn: Turn, node: NodeRecord) -> None:
    """Expect nothing more of a node that fell silent while somebody works on it."""
    node.absent = True
    note_hearing(turn.state, node)
    turn.announce(node.name, "NodeAway", f"{node.name} is away, as may be: {node.reason}")
    turn.mark_node(node.name)


def _doubts_itself(turn: Turn) -> bool:
    """Return whether so much of the fleet is silent that the fault is probably here."""
    state, settings = turn.state, turn.state.settings
    silent, known = len(state.unheard), len(state.nodes) - len(state.unexpected)
    if silent <= 1 or silent <= settings.fleet_silence_ratio * known:
        state.self_suspect_since_ns = 0
        return False
    if not state.self_suspect_since_ns:
        state.self_suspect_since_ns = turn.now_ns
        turn.announce(
            CONTROLLER,
            "ControllerSuspectsItself",
            f"{silent} of {known} nodes are silent at once: none is judged lost yet",
        )
    return turn.now_ns - state.self_suspect_since_ns < settings.fleet_silence_wait_ns


# --- questions to peers --------------------------------------------------------------------------


def forget_stream(state: State, node: NodeRecord) -> None:
    """Take a node for one that nobody hears, whatever its stream and its peers told."""
    node.connected, node.silent_to = False, []
    note_hearing(state, node)


def end_confirmation(state: State, node: NodeRecord) -> None:
    """Ask nobody any more whether a node is alive."""
    waiting, node.confirmation = node.confirmation, None
    for peer in waiting.asked if waiting is not None else ():
        _drop_question(state, peer, node.name)


def _drop_question(state: State, peer: str, silent: str) -> None:
    asked = state.nodes.get(peer)
    if asked is not None and silent in asked.questions:
        asked.questions.remove(silent)


def unanswered_questions(state: State, node: NodeRecord) -> Iterator[ConfirmSilence]:
    """Yield what a node was asked about silent peers, and has not answered."""
    for silent in node.questions:
        yield confirmation_order(state.nodes[silent], node.name)


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
        peer_bulk_address=silent.bulk_address,
    )


HANDLERS: Handlers = {
    events.NodeDisconnected: node_disconnected,
    events.PeerReported: peer_reported,
    events.PeerJudged: peer_judged,
    events.AgentAnswered: agent_answered,
    events.AgentLeaving: agent_leaving,
}
TIMERS: Timers = {
    TimerKind.STREAM: silence_due,
    TimerKind.CONFIRM: silence_due,
}
