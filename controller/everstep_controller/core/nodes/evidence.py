"""Evidence of liveness: what is heard of nodes and what is not, as events tell it.

A silence only asks: the agent itself on its stream, and peers (`rounds.py`). What the evidence of a
silence comes to is judged when it is reconciled (`liveness.py`).
"""

from collections.abc import Mapping

from everstep_common.reports import TcpAnswer
from everstep_controller.core import events
from everstep_controller.core.events import (
    AgentAnswered,
    AgentLeaving,
    NodeConnected,
    NodeDisconnected,
    PeerJudged,
    PeerReported,
)
from everstep_controller.core.model.node import NodeRecord, NodeSpec, NodeState
from everstep_controller.core.model.node_liveness import Silence
from everstep_controller.core.nodes import (
    agent_findings,
    agent_identity,
    findings,
    indexing,
    quorum,
    rounds,
    stream_flaps,
    unanswered_orders,
)
from everstep_controller.core.nodes.watchers import watchers_of
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind, Turn

_S = 1_000_000_000
# A peer that was itself later than this did not listen all the time: what it missed is no evidence.
_LATE_NS = _S // 2
# What a watcher says of the past of a silence is believed so far back.
_BACKDATED_MAX_NS = 10 * _S
KERNEL_SAYS: Mapping[TcpAnswer, str] = {
    TcpAnswer.ACCEPTED: "its kernel accepts connects",
    TcpAnswer.REFUSED: "its kernel refuses connects",
    TcpAnswer.UNREACHABLE: "the network says that it is unreachable",
}
# How often an agent is asked that peers do not hear.
_ASK_BLOCKED_NS = 60 * _S
# So many peers that got no answer are remembered.
_DENIED_MAX = 5


# --- events: who is heard, and by whom -----------------------------------------------------------


def record_hello(turn: Turn, node: NodeRecord, event: NodeConnected) -> None:
    """Take what an agent says of its node when its stream opens."""
    turn.mark_node(node.name)
    agent_identity.accept(turn, node, event)
    rebooted = has_rebooted(node, event)
    if node.liveness.connected:
        stream_flaps.record_end(turn, node)
    end_silence(turn, node, "its agent connected")
    _end_blocked(turn, node, "its agent connected")
    unanswered_orders.record_answer(turn, node, "its agent connected")
    liveness = node.liveness
    liveness.absent, liveness.connected, liveness.silent_to = False, True, []
    if node.spec.outbox and node.spec.outbox != event.outbox:
        turn.state.outboxes.pop(node.spec.outbox, None)
    node.spec = _spec_of(event)
    liveness.lost_by = node.identity.renamed_to = ""
    indexing.note_hearing(turn, node)
    quorum.note_heard(turn)
    liveness.unheard = liveness.renewing = False
    liveness.hello_ns = turn.now_ns
    findings.replace_agent_findings(turn, node, event.open_findings, event.findings_since_ns)
    node.blame.reason = ""
    node.news.connected = (
        "its agent connected after a reboot" if rebooted else "its agent connected"
    )


def _spec_of(event: NodeConnected) -> NodeSpec:
    return NodeSpec(
        boot_id=event.boot_id,
        outbox=event.outbox,
        agent_version=event.agent_version,
        host=event.host,
        domain=event.domain,
        machine=event.machine,
        bulk_address=event.bulk_address,
        liveness_address=event.liveness_address,
        inventory=event.inventory,
    )


def has_rebooted(node: NodeRecord, event: NodeConnected) -> bool:
    """Return whether a node has started anew since it was heard last."""
    return bool(node.spec.boot_id) and node.spec.boot_id != event.boot_id


def node_disconnected(turn: Turn, event: NodeDisconnected) -> None:
    """A stream ended; while the journal was rebuilt it may have been one of a node that it lost."""
    node = turn.state.nodes.get(event.node)
    if node is not None and not node.gone and node.liveness.connected:
        node.liveness.connected = False
        stream_flaps.record_end(turn, node, event.reason)
        _fall_silent(turn, node, turn.now_ns)


def peer_reported(turn: Turn, event: PeerReported) -> None:
    """A node lost sight of a peer, or sees it again."""
    node = turn.state.nodes.get(event.peer)
    if node is None or node.gone or node.state is NodeState.MAINTENANCE:
        return
    if event.silent:
        if event.node not in node.liveness.silent_to:
            node.liveness.silent_to.append(event.node)
        since_ns = turn.now_ns - min(event.silent_for_ns, _BACKDATED_MAX_NS)
        _fall_silent(turn, node, since_ns)
        node.liveness.silence.unheard[event.node] = since_ns
        return
    node.liveness.silence.unheard.pop(event.node, None)
    if event.node in node.liveness.silent_to:
        node.liveness.silent_to.remove(event.node)
        indexing.note_hearing(turn, node)
        turn.mark_node(node.name)
    _end_blocked(turn, node, f"{event.node} hears it again")
    if not node.liveness.silent_since_ns:
        return
    _hear_by_peers(turn, node)
    if (
        not node.liveness.silent_to
        and node.liveness.connected
        and node.liveness.confirmation is None
    ):
        end_silence(turn, node, f"{event.node} hears it again")


def peer_judged(turn: Turn, event: PeerJudged) -> None:
    """Take the word of a peer that was asked."""
    node = turn.state.nodes.get(event.peer)
    if node is not None and event.udp:
        # A watcher that did not hear it may have blocked probes, or cannot say more.
        _end_blocked(turn, node, f"{event.node} hears it")
    waiting = node.liveness.confirmation if node else None
    if node is None or waiting is None or waiting.id != event.confirm_id:
        return
    if event.node not in waiting.asked or event.node in waiting.verdicts:
        return
    turn.mark_node(node.name)
    node.news.evidence = True
    turn.state.mute_rounds = 0
    rounds.drop_question(turn.state, event.node, node.name)
    waiting.verdicts[event.node] = event.udp or event.tcp in KERNEL_SAYS
    _note_evidence(turn, node.liveness.silence, event, waiting.asked_ns)
    indexing.note_hearing(turn, node)


def _note_evidence(turn: Turn, silence: Silence, event: PeerJudged, asked_ns: int) -> None:
    said = KERNEL_SAYS.get(event.tcp, "")
    if said:
        silence.kernel_ns, silence.kernel_said = turn.now_ns, said
    if event.udp:
        silence.heard_ns = turn.now_ns
    if event.udp or said:
        silence.denied.clear()
        silence.held = ""
    elif event.late_ns <= _LATE_NS:
        if not silence.denied:
            silence.denied_since_ns = asked_ns
        # The newest are in as many domains as there are.
        others = [name for name in silence.denied if name != event.node]
        silence.denied = [*others, event.node][-_DENIED_MAX:]


def agent_answered(turn: Turn, event: AgentAnswered) -> None:
    """An agent's event loop answered on its stream: whatever peers say, it is there."""
    node = turn.state.nodes.get(event.node)
    if node is None or node.gone or not node.liveness.connected:
        return
    turn.state.mute_rounds = 0
    agent_identity.note_answer(node)
    if node.liveness.silent_to:
        node.liveness.blocked_since_ns = node.liveness.blocked_since_ns or turn.now_ns
    node.liveness.silent_to = []
    node.liveness.answered_ns = turn.now_ns
    end_silence(turn, node, "its agent answers on its stream")
    if node.liveness.blocked_since_ns:
        # Nobody tells of a second silence: its agent is asked again.
        known = findings.has_finding(node, agent_findings.blocked_probes(node).key)
        wait_ns = _ASK_BLOCKED_NS if known else turn.state.settings.agent_return_ns
        turn.set_timer(f"{TimerKind.SILENCE}/{node.name}", wait_ns)


def agent_leaving(turn: Turn, event: AgentLeaving) -> None:
    """An agent ends as was asked of it, and is expected back: its silence is none."""
    node = turn.state.nodes.get(event.node)
    if node is None or node.gone or node.state is NodeState.MAINTENANCE:
        return
    _fall_silent(turn, node, turn.now_ns)
    node.liveness.silence.leaving = event.reason or "for no reason that it told"
    turn.announce(node.name, "AgentLeaving", f"the agent of {node.name} ends: {event.reason}")


def expect_nothing(turn: Turn, node: NodeRecord) -> None:
    """Judge no silence of a node on which somebody begins to work."""
    rounds.end(turn, node)
    node.liveness.silence = Silence()
    if node.liveness.connected:
        node.liveness.silent_since_ns = 0  # or a later fault would be dated back to this silence
    turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")
    indexing.note_hearing(turn, node)


def expect_again(turn: Turn, node: NodeRecord) -> None:
    """Take a node on which nobody works any more for silent from now on: it is asked about."""
    node.liveness.silence, node.liveness.silent_since_ns = Silence(), 0
    _fall_silent(turn, node, turn.now_ns)


def silence_due(turn: Turn, name: str) -> None:
    """A silence is to be judged again, or who was asked has had the time to answer."""
    node = turn.state.nodes.get(name)
    if node is None:
        return
    if (
        node.liveness.blocked_since_ns
        and node.liveness.connected
        and not node.liveness.silent_since_ns
    ):
        if not findings.has_finding(node, agent_findings.blocked_probes(node).key):
            findings.raise_finding(turn, node, agent_findings.blocked_probes(node))
        _fall_silent(turn, node, turn.now_ns)
    turn.mark_node(name)


# An agent is back so soon after a controller has started (`reconnect_backoff_max_s` of its own).
RECONNECT_NS = 15_000_000_000


def expect_agents(turn: Turn, again_ns: int | None = None) -> None:
    """Wait for every agent: the controller starts, and nobody was listening before.

    ``again_ns``: what is left of an earlier start's time, which was shortly before this one.
    """
    state = turn.state
    state.roll = None
    for node in state.nodes.values():
        grace_ns = _grace_ns(turn, node, again_ns)
        rounds.end(turn, node)
        agent_identity.end_contentions(turn, node)
        node.liveness.connected, node.liveness.silent_to = False, []
        node.liveness.silence = Silence()
        if node.health.findings and state.settings.evidence_max_age_ns:
            node.liveness.unheard = True
            turn.mark_node(node.name)
        if not node.gone:
            node.liveness.silent_since_ns = turn.now_ns
            node.liveness.silence.expected_until_ns = turn.now_ns + grace_ns
            turn.set_timer(f"{TimerKind.SILENCE}/{node.name}", grace_ns)
        indexing.note_hearing(turn, node)


def _grace_ns(turn: Turn, node: NodeRecord, again_ns: int | None) -> int:
    """Return how long a node is waited for; the wait for one that was not heard since goes on."""
    whole_ns = turn.state.settings.startup_grace_ns
    until_ns = node.liveness.silence.expected_until_ns
    if until_ns and not node.liveness.connected:
        return min(whole_ns, max(until_ns - turn.now_ns, RECONNECT_NS))
    return whole_ns if again_ns is None or node.liveness.connected else again_ns


def void_silences(turn: Turn, duration_ns: int) -> None:
    """Judge no silence by a time in which the controller stood still."""
    turn.state.roll = None
    for name in turn.state.index.silent:
        node = turn.state.nodes[name]
        rounds.end(turn, node)
        silence = node.liveness.silence
        silence.denied.clear()
        node.liveness.silent_since_ns = min(
            turn.now_ns, node.liveness.silent_since_ns + duration_ns
        )
        silence.expected_until_ns += duration_ns if silence.expected_until_ns else 0
        silence.unheard = {
            name: min(turn.now_ns, at_ns + duration_ns) for name, at_ns in silence.unheard.items()
        }
        turn.mark_node(name)


# -------------------------------------------------------------------------------------------------


def _fall_silent(turn: Turn, node: NodeRecord, since_ns: int) -> None:
    """A channel of a node fell silent: it is asked at once what of it answers.

    The end of a stream may be noticed late: then it is peers who know since when.
    """
    turn.mark_node(node.name)
    since_ns = max(since_ns, node.liveness.answered_ns, 1)
    node.liveness.silence.watchers = node.liveness.silence.watchers or watchers_of(turn.state, node)
    node.liveness.silent_since_ns = min(node.liveness.silent_since_ns or since_ns, since_ns)
    indexing.note_hearing(turn, node)
    node.news.silent = True


def _end_blocked(turn: Turn, node: NodeRecord, evidence: str) -> None:
    if node.liveness.blocked_since_ns:
        node.liveness.blocked_since_ns = 0
        findings.clear_finding(turn, node, agent_findings.blocked_probes(node).key, evidence)
        if not node.liveness.silent_since_ns:
            turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")


def _hear_by_peers(turn: Turn, node: NodeRecord) -> None:
    node.liveness.silence.heard_ns = turn.now_ns
    node.liveness.silence.denied.clear()
    node.liveness.silence.held = ""
    indexing.refresh(turn, node)
    node.news.evidence = True
    turn.mark_node(node.name)


def end_silence(turn: Turn, node: NodeRecord, evidence: str) -> None:
    """Take a node for one that is heard."""
    rounds.end(turn, node)
    turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")
    node.liveness.silence, node.liveness.silent_since_ns = Silence(), 0
    indexing.note_hearing(turn, node)
    for condition in (agent_findings.AGENT_GONE, agent_findings.AGENT_HUNG):
        key = agent_findings.silent_agent(condition, "").key
        findings.clear_finding(turn, node, key, evidence)
    turn.mark_node(node.name)


HANDLERS: Handlers = {
    events.NodeDisconnected: node_disconnected,
    events.PeerReported: peer_reported,
    events.PeerJudged: peer_judged,
    events.AgentAnswered: agent_answered,
    events.AgentLeaving: agent_leaving,
}
TIMERS: Timers = {
    TimerKind.SILENCE: silence_due,
    TimerKind.CONFIRM: silence_due,
}
