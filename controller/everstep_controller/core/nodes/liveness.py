"""Liveness of nodes: what is heard of them and what is not, and what a silence leads to.

A silence only asks: the agent itself on its stream, and peers (`rounds.py`). What answers decides
(`verdict.py`). A doubtful node keeps its place in its lifecycle; a lost one changes it.
"""

from collections.abc import Mapping

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
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
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.liveness import Silence
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import (
    CONTROLLER,
    State,
    forget_hearing,
    note_hearing,
)
from everstep_controller.core.nodes import agent_identity, health, lifecycle, rounds, verdict
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.nodes.verdict import Liveness, LivenessVerdict, Patience, Signs
from everstep_controller.core.nodes.watchers import watchers_of
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

_S = 1_000_000_000
# A peer that was itself later than this did not listen all the time: what it missed is no evidence.
_LATE_NS = _S // 2
# What a watcher says of the past of a silence is believed so far back.
_BACKDATED_MAX_NS = 10 * _S
# An agent that answered on its stream so shortly ago is not asked again at once.
_FRESH_NS = 2 * _S
_KERNEL_SAYS: Mapping[TcpAnswer, str] = {
    TcpAnswer.ACCEPTED: "its kernel accepts connects",
    TcpAnswer.REFUSED: "its kernel refuses connects",
    TcpAnswer.UNREACHABLE: "the network says that it is unreachable",
}
_STEPPING = (JobState.RUNNING, JobState.STALLED)
# Steps that a member took part in prove its ranks' life for so many times as long as one took.
_STEPS_PROVE_TIMES = 3
# What people are told when a node becomes doubtful.
NODE_DOUBTFUL = "NodeDoubtful"
# How often an agent is asked that peers do not hear.
_ASK_BLOCKED_NS = 60 * _S
# So many peers that got no answer are remembered.
_DENIED_MAX = 5
# After so many rounds of questions without any answer, about whatever nodes, the fault is here.
_MUTE_ROUNDS = 3

AGENT_GONE = Condition(
    name="AgentGone",
    component="agent",
    meaning="the node's agent is away, and the node is not lost: its kernel answers, its job makes "
    "steps, or nobody is there who could tell; ranks that step go on, the node takes no new ones, "
    "and no job counts on its vault",
    source="its stream, and peers that ask it by UDP and TCP; away for 15 s (agent_return_s)",
    clears_when="its agent connects",
    mode=Mode.ADVISE,
)
PROBES_BLOCKED = Condition(
    name="ProbesBlocked",
    component="agent/liveness",
    meaning="the node's agent answers on its stream, and peers do not hear it over UDP: its silence"
    " would be noticed late",
    source="probes of the peers that watch it, for 15 s (agent_return_s), and pings on its stream",
    clears_when="one of these peers hears it",
    mode=Mode.ADVISE,
)
AGENT_HUNG = Condition(
    name="AgentHung",
    component="agent",
    meaning="the node's agent has its stream open and does not answer, and the node is not lost; "
    "ranks that step go on, the node takes no new ones, and no job counts on its vault",
    source="pings on its stream, and peers that probe it; for 15 s (agent_return_s)",
    clears_when="its agent answers, or connects anew",
    mode=Mode.ADVISE,
)


# --- events: who is heard, and by whom -----------------------------------------------------------


def record_hello(turn: Turn, node: NodeRecord, event: NodeConnected) -> None:
    """Take what an agent says of its node when its stream opens."""
    turn.mark_node(node.name)
    agent_identity.accept(turn, node, event)
    rebooted = has_rebooted(node, event)
    _end_silence(turn, node, "its agent connected")
    forget_hearing(turn.state, node)
    _end_blocked(turn, node, "its agent connected")
    health.record_answer(turn, node, "its agent connected")
    node.absent, node.connected, node.silent_to = False, True, []
    node.boot_id, node.agent_version = event.boot_id, event.agent_version
    if node.outbox and node.outbox != event.outbox:
        turn.state.outboxes.pop(node.outbox, None)
    node.outbox = event.outbox
    node.host, node.domain, node.inventory = event.host, event.domain, event.inventory
    node.bulk_address, node.liveness_address = event.bulk_address, event.liveness_address
    note_hearing(turn.state, node)
    health.replace_agent_findings(node, event.open_findings, turn.now_ns)
    node.blamed = ""
    node.news.connected = (
        "its agent connected after a reboot" if rebooted else "its agent connected"
    )


def has_rebooted(node: NodeRecord, event: NodeConnected) -> bool:
    """Return whether a node has started anew since it was heard last."""
    return bool(node.boot_id) and node.boot_id != event.boot_id


def node_disconnected(turn: Turn, event: NodeDisconnected) -> None:
    """A stream ended; while the journal was rebuilt it may have been one of a node that it lost."""
    node = turn.state.nodes.get(event.node)
    if node is not None and not node.gone and node.connected:
        node.connected = False
        _fall_silent(turn, node, turn.now_ns)


def peer_reported(turn: Turn, event: PeerReported) -> None:
    """A node lost sight of a peer, or sees it again."""
    node = turn.state.nodes.get(event.peer)
    if node is None or node.gone or node.state is NodeState.MAINTENANCE:
        return
    if event.silent:
        if event.node not in node.silent_to:
            node.silent_to.append(event.node)
        since_ns = turn.now_ns - min(event.silent_for_ns, _BACKDATED_MAX_NS)
        _fall_silent(turn, node, since_ns)
        node.silence.unheard[event.node] = since_ns
        return
    node.silence.unheard.pop(event.node, None)
    if event.node in node.silent_to:
        node.silent_to.remove(event.node)
        note_hearing(turn.state, node)
        turn.mark_node(node.name)
    _end_blocked(turn, node, f"{event.node} hears it again")
    if not node.silent_since_ns:
        return
    _hear_by_peers(turn, node)
    if not node.silent_to and node.connected and node.confirmation is None:
        _end_silence(turn, node, f"{event.node} hears it again")


def peer_judged(turn: Turn, event: PeerJudged) -> None:
    """Take the word of a peer that was asked."""
    node = turn.state.nodes.get(event.peer)
    if node is not None and event.udp:
        # Whoever did not hear it may be the one whose probes are blocked, or cannot say more.
        _end_blocked(turn, node, f"{event.node} hears it")
    waiting = node.confirmation if node else None
    if node is None or waiting is None or waiting.id != event.confirm_id:
        return
    if event.node not in waiting.asked or event.node in waiting.verdicts:
        return
    turn.mark_node(node.name)
    node.news.evidence = True
    turn.state.mute_rounds = 0
    rounds.drop_question(turn.state, event.node, node.name)
    waiting.verdicts[event.node] = event.udp or event.tcp in _KERNEL_SAYS
    _note_evidence(turn, node.silence, event, waiting.asked_ns)


def _note_evidence(turn: Turn, silence: Silence, event: PeerJudged, asked_ns: int) -> None:
    said = _KERNEL_SAYS.get(event.tcp, "")
    if said:
        silence.kernel_ns, silence.kernel_said = turn.now_ns, said
    if event.udp:
        silence.heard_ns = turn.now_ns
    if event.udp or said:
        silence.denied.clear()
    elif event.late_ns <= _LATE_NS and event.node not in silence.denied:
        if not silence.denied:
            silence.denied_since_ns = asked_ns
        silence.denied = sorted([*silence.denied, event.node])[:_DENIED_MAX]


def agent_answered(turn: Turn, event: AgentAnswered) -> None:
    """An agent's event loop answered on its stream: whatever peers say, it is there."""
    node = turn.state.nodes.get(event.node)
    if node is None or node.gone or not node.connected:
        return
    turn.state.mute_rounds = 0
    agent_identity.note_answer(node)
    if node.silent_to:
        node.blocked_since_ns = node.blocked_since_ns or turn.now_ns
    node.silent_to = []
    node.answered_ns = turn.now_ns
    _end_silence(turn, node, "its agent answers on its stream")
    if node.blocked_since_ns:
        # Nobody tells of a second silence: its agent is asked again.
        known = health.has_finding(node, _blocked(node).key)
        wait_ns = _ASK_BLOCKED_NS if known else turn.state.settings.agent_return_ns
        turn.set_timer(f"{TimerKind.SILENCE}/{node.name}", wait_ns)


def agent_leaving(turn: Turn, event: AgentLeaving) -> None:
    """An agent ends as was asked of it, and is expected back: its silence is none."""
    node = turn.state.nodes.get(event.node)
    if node is None or node.gone or node.state is NodeState.MAINTENANCE:
        return
    _fall_silent(turn, node, turn.now_ns)
    node.silence.leaving = event.reason or "for no reason that it told"
    turn.announce(node.name, "AgentLeaving", f"the agent of {node.name} ends: {event.reason}")


def expect_nothing(turn: Turn, node: NodeRecord) -> None:
    """Judge no silence of a node on which somebody begins to work."""
    rounds.end(turn, node)
    node.silence = Silence()
    if node.connected:
        node.silent_since_ns = 0  # or a later fault would be dated back to this silence
    turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")
    note_hearing(turn.state, node)


def silence_due(turn: Turn, name: str) -> None:
    """A silence is to be judged again, or who was asked has had the time to answer."""
    node = turn.state.nodes.get(name)
    if node is None:
        return
    if node.blocked_since_ns and node.connected and not node.silent_since_ns:
        if not health.has_finding(node, _blocked(node).key):
            health.raise_finding(turn, node, _blocked(node))
        _fall_silent(turn, node, turn.now_ns)
    turn.mark_node(name)


def expect_agents(turn: Turn) -> None:
    """Wait for every agent: the controller starts, and nobody was listening before."""
    state = turn.state
    for node in state.nodes.values():
        rounds.end(turn, node)
        agent_identity.end_contentions(turn, node)
        node.connected, node.silent_to = False, []
        node.silence = Silence()
        if not node.gone:
            grace_ns = state.settings.startup_grace_ns
            node.silent_since_ns = turn.now_ns
            node.silence.expected_until_ns = turn.now_ns + grace_ns
            turn.set_timer(f"{TimerKind.SILENCE}/{node.name}", grace_ns)
        note_hearing(state, node)


def void_silences(turn: Turn, duration_ns: int) -> None:
    """Judge no silence by a time in which the controller stood still."""
    for name in turn.state.silent:
        node = turn.state.nodes[name]
        rounds.end(turn, node)
        silence = node.silence
        silence.denied.clear()
        node.silent_since_ns = min(turn.now_ns, node.silent_since_ns + duration_ns)
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
    since_ns = max(since_ns, node.answered_ns, 1)
    node.silence.watchers = node.silence.watchers or watchers_of(turn.state, node)
    node.silent_since_ns = min(node.silent_since_ns or since_ns, since_ns)
    note_hearing(turn.state, node)
    node.news.silent = True


def _end_blocked(turn: Turn, node: NodeRecord, evidence: str) -> None:
    if node.blocked_since_ns:
        node.blocked_since_ns = 0
        health.clear_finding(turn, node, _blocked(node).key, evidence)
        if not node.silent_since_ns:
            turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")


def _blocked(node: NodeRecord) -> Finding:
    return Finding(
        component=PROBES_BLOCKED.component,
        condition=PROBES_BLOCKED.name,
        mode=PROBES_BLOCKED.mode,
        severity=Severity.INFO,
        message=f"peers do not hear {node.name} over UDP, and its agent answers on its stream",
        suggested_action=SuggestedAction.WATCH,
        rule="let UDP through to liveness_address; cleared when a peer hears it",
    )


def _hear_by_peers(turn: Turn, node: NodeRecord) -> None:
    node.silence.heard_ns = turn.now_ns
    node.silence.denied.clear()
    node.news.evidence = True
    turn.mark_node(node.name)


def _end_silence(turn: Turn, node: NodeRecord, evidence: str) -> None:
    """Take a node for one that is heard."""
    rounds.end(turn, node)
    turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")
    node.silence, node.silent_since_ns = Silence(), 0
    note_hearing(turn.state, node)
    for condition in (AGENT_GONE, AGENT_HUNG):
        health.clear_finding(turn, node, _finding(condition, "").key, evidence)
    turn.mark_node(node.name)


# --- reconciliation: who is doubtful, and who is lost --------------------------------------------


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Judge a silence when something is new or a time is up, and ask again where that is due."""
    silent, heard = node.news.silent, node.news.evidence
    node.news.silent = node.news.evidence = False
    if node.gone or not node.silent_since_ns:
        return
    if node.state is NodeState.MAINTENANCE:
        _await_maintained(turn, node)
        return
    if node.confirmation is not None and rounds.is_over(turn, node):
        heard = True
        _end_round(turn, node)
    ask = silent or not turn.has_timer(TimerKind.SILENCE, node.name)
    if node.silent_since_ns and (heard or ask):
        _judge_silence(turn, node, ask=ask)


def _judge_silence(turn: Reconciliation, node: NodeRecord, *, ask: bool) -> None:
    found = _judge(turn, node)
    if found.liveness is Liveness.LOST and not _held_back(turn, node):
        _lose_node(turn, node, found.why)
        return
    _note_doubt(turn, node, found.why if found.liveness is not Liveness.ALIVE else "")
    if ask:
        if node.confirmation is None and not _is_fresh(turn, node):
            rounds.ask(turn, node)
        told_ns = node.silent_since_ns + turn.state.settings.agent_return_ns
        again_ns = min(found.again_ns, told_ns) if told_ns > turn.now_ns else found.again_ns
        after_ns = max(again_ns - turn.now_ns, 1)
        turn.set_timer(f"{TimerKind.SILENCE}/{node.name}", after_ns)


def _judge(turn: Turn, node: NodeRecord) -> LivenessVerdict:
    silence, settings = node.silence, turn.state.settings
    signs = Signs(
        connected=node.connected,
        since_ns=node.silent_since_ns,
        unheard_ns=_unheard_since_ns(turn, node),
        heard_ns=silence.heard_ns,
        kernel_ns=silence.kernel_ns,
        kernel_said=silence.kernel_said,
        network_said=silence.kernel_said == _KERNEL_SAYS[TcpAnswer.UNREACHABLE],
        asked=silence.asked,
        denied=tuple(silence.denied),
        witnesses=rounds.witnesses(turn.state, node),
        leaving=silence.leaving,
        expected_until_ns=silence.expected_until_ns,
        stepping_until_ns=_stepping_until_ns(turn.state, node),
    )
    return verdict.judge(signs, _patience(settings), turn.now_ns)


def _unheard_since_ns(turn: Turn, node: NodeRecord) -> int:
    """Return since when nobody has heard a silent node who could have heard it.

    When all its watchers that are heard themselves have missed it, that is when the last one heard
    it. One that has not, or not yet, may hear it still: then it is when those were asked first who
    got no answer.
    """
    silence = node.silence
    for name in silence.watchers:
        if name not in silence.unheard and not _cannot_tell(turn, name):
            return silence.denied_since_ns
    return max(silence.unheard.values(), default=silence.denied_since_ns)


def _cannot_tell(turn: Turn, name: str) -> bool:
    """Return whether a watcher is silent itself; after a start it may only not be back yet."""
    node = turn.state.nodes.get(name)
    if node is None or node.gone:
        return True
    if turn.now_ns < node.silence.expected_until_ns:
        return False
    return not node.connected or bool(node.silent_to) or node.doubtful


def _patience(settings: Settings) -> Patience:
    return Patience(silence_ns=settings.silence_ns, few_witnesses_ns=settings.loss_hold_ns)


def _stepping_until_ns(state: State, node: NodeRecord) -> int:
    """Return until when the steps that a node's jobs have made prove that its ranks live; or 0.

    The first one after the silence may have been in flight; no second one is made without it.
    """
    found = 0
    for job_id in node.jobs:
        job = state.jobs.get(job_id)
        if job is None or job.state not in _STEPPING:
            continue
        members, steps = job.generation.members, job.ledger.steps
        if node.name not in members or len(members) == 1:
            continue
        if len(steps) > 1 and steps[-2].end_ns > node.silent_since_ns:
            lasts_ns = _STEPS_PROVE_TIMES * (steps[-1].end_ns - steps[-1].start_ns)
            found = max(found, steps[-1].end_ns + max(state.settings.silence_ns, lasts_ns))
    return found


def _is_fresh(turn: Turn, node: NodeRecord) -> bool:
    return node.connected and bool(node.answered_ns) and turn.now_ns - node.answered_ns < _FRESH_NS


def _end_round(turn: Reconciliation, node: NodeRecord) -> None:
    waiting = node.confirmation
    rounds.end(turn, node)
    node.silence.asked = True
    if node.connected and not node.silent_to and node.silence.heard_ns:
        _end_silence(turn, node, "its peers hear it")
    if waiting is None or waiting.verdicts:
        return
    turn.state.mute_rounds += 1
    if turn.state.mute_rounds == _MUTE_ROUNDS:
        message = f"nobody answers who is asked about {node.name}: none is judged lost by that"
        turn.announce(CONTROLLER, "ControllerSuspectsItself", message)


def _note_doubt(turn: Reconciliation, node: NodeRecord, doubt: str) -> None:
    """Keep why a node is doubtful, and have people told of an agent that does not come back.

    Not of one of which no peer tells: then the controller may be the one that is cut off.
    """
    silence, before = node.silence, node.silence.doubt
    if doubt and not before:
        silence.doubted_ns = turn.now_ns
        turn.announce(node.name, NODE_DOUBTFUL, f"{node.name} is doubtful: {doubt}")
    silence.doubt = doubt
    if bool(doubt) != bool(before):
        note_hearing(turn.state, node)
        turn.mark_node(node.name)
    away_ns = turn.now_ns - node.silent_since_ns
    due = doubt and away_ns >= turn.state.settings.agent_return_ns
    if due and (_is_witnessed(silence) or not rounds.witnesses(turn.state, node)):
        condition = AGENT_HUNG if node.connected else AGENT_GONE
        if not health.has_finding(node, _finding(condition, "").key):
            health.raise_finding(turn, node, _finding(condition, doubt))


def _is_witnessed(silence: Silence) -> bool:
    """Return whether some peer has told of a silence; else it may be the controller's own."""
    return bool(silence.kernel_ns or silence.heard_ns or silence.denied)


def _finding(condition: Condition, doubt: str) -> Finding:
    word = "hangs" if condition is AGENT_HUNG else "is away"
    return Finding(
        component=condition.component,
        condition=condition.name,
        mode=condition.mode,
        severity=Severity.DEGRADED,
        message=f"its agent {word}: {doubt}",
        suggested_action=SuggestedAction.WATCH,
        rule="see 'journalctl -u everstep-agent' on the node; cleared when its agent answers",
    )


def _held_back(turn: Turn, node: NodeRecord) -> bool:
    """Return whether so many were lost lately that this one stays doubtful for a while.

    A whole domain that falls silent while three nodes outside it answer is one fault, whatever its
    size. What is alone in its domain is a node like any other.
    """
    state, settings = turn.state, turn.state.settings
    since_ns = turn.now_ns - settings.loss_hold_ns
    if len(node.silence.denied) >= rounds.CONFIRMERS and _is_lost_whole(turn, node, since_ns):
        return False
    state.losses_ns = [at_ns for at_ns in state.losses_ns if at_ns > since_ns]
    share = int(len(state.nodes) * settings.loss_burst_ratio)
    burst = len(state.losses_ns) >= max(settings.loss_burst_nodes, share)
    if burst and node.silent_since_ns > since_ns:
        return True
    state.losses_ns.append(turn.now_ns)
    return False


def _is_lost_whole(turn: Turn, node: NodeRecord, since_ns: int) -> bool:
    """Return whether a node's domain of several is silent as a whole, and take note of that."""
    state, domain = turn.state, node.domain
    if not domain or domain in state.heard:
        return False
    lost_ns = state.domains_lost_ns
    # As its nodes are lost one after the other, the last of them is alone there.
    whole = lost_ns.get(domain, since_ns) > since_ns or len(state.expected.get(domain, ())) > 1
    # The newest are at the end, so that a quarter of the fleet does not look through all of them.
    while lost_ns and next(iter(lost_ns.values())) <= since_ns:
        del lost_ns[next(iter(lost_ns))]
    if whole:
        lost_ns.pop(domain, None)
        lost_ns[domain] = turn.now_ns
    return whole


def _lose_node(turn: Reconciliation, node: NodeRecord, reason: str) -> None:
    """Declare a node lost."""
    node.connected = False
    rounds.end(turn, node)
    turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")
    node.silence = Silence()
    turn.mark_node(node.name)
    lifecycle.move_node(turn, node, NodeEvent.SILENT, reason)
    note_hearing(turn.state, node)


def _await_maintained(turn: Reconciliation, node: NodeRecord) -> None:
    """Expect nothing more of a node that fell silent while somebody works on it."""
    if node.connected or turn.has_timer(TimerKind.SILENCE, node.name):
        return
    wait_ns = node.silent_since_ns + turn.state.settings.agent_return_ns - turn.now_ns
    if wait_ns > 0:
        turn.set_timer(f"{TimerKind.SILENCE}/{node.name}", wait_ns)
        return
    node.absent = True
    node.silence = Silence()
    rounds.end(turn, node)
    turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")
    note_hearing(turn.state, node)
    turn.announce(node.name, "NodeAway", f"{node.name} is away, as may be: {node.reason}")
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
