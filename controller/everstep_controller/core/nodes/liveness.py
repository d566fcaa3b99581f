"""Liveness of nodes: what the evidence of a silence comes to, and what is asked next.

What answers decides (`verdict.py`). A doubtful node keeps its place in its lifecycle; a lost one
changes it.
"""

from everstep_common.reports import TcpAnswer
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.node_liveness import Silence
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.nodes import (
    findings,
    indexing,
    lifecycle,
    outage,
    quorum,
    rounds,
    verdict,
)
from everstep_controller.core.nodes.agent_findings import AGENT_GONE, AGENT_HUNG, silent_agent
from everstep_controller.core.nodes.evidence import KERNEL_SAYS, end_silence
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.nodes.verdict import Liveness, LivenessVerdict, Patience, Signs
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

_S = 1_000_000_000
# An agent that answered on its stream so shortly ago is not asked again at once.
_FRESH_NS = 2 * _S
_STEPPING = (JobState.RUNNING, JobState.STALLED)
# Steps that a member took part in prove its ranks' life for so many times as long as one took.
_STEPS_PROVE_TIMES = 3
# The words to people when a node becomes doubtful.
NODE_DOUBTFUL = "NodeDoubtful"
# After so many rounds of questions without any answer, about whatever nodes, the fault is here.
_MUTE_ROUNDS = 3
# A node about which no answer would count is judged again so seldom, and when more is heard.
_HELD_RETRY_NS = 60 * _S


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Judge a silence, and say where this controller may be cut off, or many agents are."""
    _reconcile_silence(turn, node)
    quorum.tell_people(turn)
    outage.tell_people(turn)


def _reconcile_silence(turn: Reconciliation, node: NodeRecord) -> None:
    """Judge a silence when something is new or a time is up, and ask again where that is due."""
    told, node.news.told_lost = node.news.told_lost, ""
    silent, heard = node.news.silent, node.news.evidence
    node.news.silent = node.news.evidence = False
    if node.gone or not node.liveness.silent_since_ns:
        return
    if node.state is NodeState.MAINTENANCE:
        _await_maintained(turn, node)
        return
    scheduler, said = quorum.word_of_scheduler(turn.state, node)
    if told or scheduler:
        node.liveness.lost_by = node.liveness.lost_by or scheduler
        _lose_node(turn, node, told or f"{scheduler} does not hear it either: {said}")
        return
    if node.liveness.confirmation is not None and rounds.is_over(turn, node):
        heard = True
        _end_round(turn, node)
    ask = silent or not turn.has_timer(TimerKind.SILENCE, node.name)
    if node.liveness.silent_since_ns and (heard or ask):
        _judge_silence(turn, node, ask=ask)


def _judge_silence(turn: Reconciliation, node: NodeRecord, *, ask: bool) -> None:
    quorum.call_where_needed(turn, node)
    found = _judge(turn, node)
    if found.liveness is Liveness.LOST and quorum.is_answered(turn.state, node, turn.now_ns):
        if why := quorum.why_held(turn.state, node):
            quorum.hold(turn, node, why)
            found = _judge(turn, node)
        else:
            _lose_node(turn, node, found.why)
            return
    elif quorum.is_alone(turn, node):
        quorum.hold(turn, node, "nobody is heard who could tell")
    _note_doubt(turn, node, found.why if found.liveness is not Liveness.ALIVE else "")
    if ask:
        in_vain = quorum.asks_in_vain(turn.state, node)
        if node.liveness.confirmation is None and not in_vain and not _is_fresh(turn, node):
            rounds.ask(turn, node)
        after_ns = _HELD_RETRY_NS if in_vain else _retry_ns(turn, node, found)
        turn.set_timer(f"{TimerKind.SILENCE}/{node.name}", after_ns)


def _retry_ns(turn: Turn, node: NodeRecord, found: LivenessVerdict) -> int:
    """Return when a silent node is asked about again, or people are to be told of it."""
    told_ns = node.liveness.silent_since_ns + turn.state.settings.agent_return_ns
    again_ns = min(found.again_ns, told_ns) if told_ns > turn.now_ns else found.again_ns
    return max(again_ns - turn.now_ns, 1)


def _judge(turn: Turn, node: NodeRecord) -> LivenessVerdict:
    silence = node.liveness.silence
    signs = Signs(
        connected=node.liveness.connected,
        since_ns=node.liveness.silent_since_ns,
        unheard_ns=_unheard_since_ns(turn, node),
        heard_ns=silence.heard_ns,
        kernel_ns=silence.kernel_ns,
        kernel_said=silence.kernel_said,
        network_said=silence.kernel_said == KERNEL_SAYS[TcpAnswer.UNREACHABLE],
        asked=silence.asked,
        denied=tuple(sorted(silence.denied)),
        witnesses=rounds.witnesses(turn.state, node),
        leaving=silence.leaving,
        expected_until_ns=silence.expected_until_ns,
        stepping_until_ns=_stepping_until_ns(turn.state, node),
        claimed=node.identity.contender is not None or bool(node.identity.successor),
        held=f"{quorum.CUT_OFF}: {silence.held}" if silence.held else "",
        held_ns=silence.held_ns,
    )
    return verdict.judge(signs, _patience(turn.state), turn.now_ns)


def _unheard_since_ns(turn: Turn, node: NodeRecord) -> int:
    """Return since when nobody has heard a silent node who could have heard it.

    When all its watchers that are heard themselves have missed it, that is when the last one heard
    it. One that has not, or not yet, may hear it still: then it is when those were asked first who
    got no answer.
    """
    silence = node.liveness.silence
    for name in silence.watchers:
        if name not in silence.unheard and not _cannot_tell(turn, name):
            return silence.denied_since_ns
    return max(silence.unheard.values(), default=silence.denied_since_ns)


def _cannot_tell(turn: Turn, name: str) -> bool:
    """Return whether a watcher is silent itself; after a start it may only not be back yet."""
    node = turn.state.nodes.get(name)
    if node is None or node.gone:
        return True
    if turn.now_ns < node.liveness.silence.expected_until_ns:
        return False
    return not node.liveness.connected or bool(node.liveness.silent_to) or node.doubtful


def _patience(state: State) -> Patience:
    settings = state.settings
    # In a large fleet that is before people are told of each agent: they are told of all at once.
    few_ns = settings.loss_hold_ns if quorum.is_small(state) else 2 * settings.silence_ns
    return Patience(settings.silence_ns, few_witnesses_ns=few_ns, network_ns=settings.loss_hold_ns)


def _stepping_until_ns(state: State, node: NodeRecord) -> int:
    """Return until when the steps that a node's jobs have made prove that its ranks live; or 0.

    The first one after the silence may have been in flight; no second one is made without it.
    """
    found = 0
    for job_id in node.jobs.ids:
        job = state.jobs.get(job_id)
        if job is None or job.state not in _STEPPING:
            continue
        members, steps = job.generation.members, job.ledger.steps
        if node.name not in members or len(members) == 1:
            continue
        if len(steps) > 1 and steps[-2].end_ns > node.liveness.silent_since_ns:
            lasts_ns = _STEPS_PROVE_TIMES * (steps[-1].end_ns - steps[-1].start_ns)
            found = max(found, steps[-1].end_ns + max(state.settings.silence_ns, lasts_ns))
    return found


def _is_fresh(turn: Turn, node: NodeRecord) -> bool:
    return (
        node.liveness.connected
        and bool(node.liveness.answered_ns)
        and turn.now_ns - node.liveness.answered_ns < _FRESH_NS
    )


def _end_round(turn: Reconciliation, node: NodeRecord) -> None:
    waiting = node.liveness.confirmation
    rounds.end(turn, node)
    node.liveness.silence.asked = True
    if node.liveness.connected and not node.liveness.silent_to and node.liveness.silence.heard_ns:
        end_silence(turn, node, "its peers hear it")
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
    silence, before = node.liveness.silence, node.liveness.silence.doubt
    if doubt and not before:
        silence.doubted_ns = turn.now_ns
        turn.announce(node.name, NODE_DOUBTFUL, f"{node.name} is doubtful: {doubt}")
    silence.doubt = doubt
    if bool(doubt) != bool(before):
        indexing.note_hearing(turn, node)
        turn.mark_node(node.name)
    away_ns = turn.now_ns - node.liveness.silent_since_ns
    due = doubt and not silence.held and away_ns >= turn.state.settings.agent_return_ns
    told = outage.is_witnessed(silence) or not rounds.witnesses(turn.state, node)
    if due and told and not outage.takes(turn, node):
        _tell_of_agent(turn, node, doubt)


def _tell_of_agent(turn: Reconciliation, node: NodeRecord, doubt: str) -> None:
    """Have a finding say that the agent of a node is away, or hangs."""
    found, other = (AGENT_HUNG, AGENT_GONE) if _hangs(node) else (AGENT_GONE, AGENT_HUNG)
    findings.clear_finding(turn, node, silent_agent(other, "").key, doubt)
    if not findings.has_finding(node, silent_agent(found, "").key):
        findings.raise_finding(turn, node, silent_agent(found, doubt))


def _hangs(node: NodeRecord) -> bool:
    """Return whether an agent is there and does not answer, by what does.

    The transport ends the stream of a stopped process. Its port accepts connects even then, as the
    port of one that has ended does not; but so does that of an agent which only its stream and its
    probes do not reach.
    """
    silence = node.liveness.silence
    accepts = silence.kernel_said == KERNEL_SAYS[TcpAnswer.ACCEPTED]
    unheard = not silence.heard_ns and not node.liveness.blocked_since_ns
    return node.liveness.connected or (accepts and unheard and not silence.leaving)


def _lose_node(turn: Reconciliation, node: NodeRecord, reason: str) -> None:
    """Declare a node lost."""
    node.liveness.connected = False
    rounds.end(turn, node)
    turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")
    node.liveness.silence = Silence()
    turn.mark_node(node.name)
    lifecycle.move_node(turn, node, NodeEvent.SILENT, reason)
    indexing.note_hearing(turn, node)


def _await_maintained(turn: Reconciliation, node: NodeRecord) -> None:
    """Expect nothing more of a node that fell silent while somebody works on it."""
    if node.liveness.connected or turn.has_timer(TimerKind.SILENCE, node.name):
        return
    wait_ns = node.liveness.silent_since_ns + turn.state.settings.agent_return_ns - turn.now_ns
    if wait_ns > 0:
        turn.set_timer(f"{TimerKind.SILENCE}/{node.name}", wait_ns)
        return
    node.liveness.absent = True
    node.liveness.silence = Silence()
    rounds.end(turn, node)
    turn.drop_timer(f"{TimerKind.SILENCE}/{node.name}")
    indexing.note_hearing(turn, node)
    turn.announce(node.name, "NodeAway", f"{node.name} is away, as may be: {node.reason}")
    turn.mark_node(node.name)
