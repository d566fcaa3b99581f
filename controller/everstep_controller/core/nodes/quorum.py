"""Quorum: whether this controller hears enough of the fleet to take a silence for a loss.

From here a cut around the controller and a fleet of which most is down look the same. So a node is
lost by its silence alone where more than half of the fleet answers, and peers in failure domains
other than the controller's could not reach it. What is lost by silence still counts as unheard:
two cuts, one after the other, are no smaller than one.
"""

from collections.abc import Iterator, Sequence

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core import events
from everstep_controller.core.actions import CallRoll
from everstep_controller.core.model.node import NodeRecord, NodeState, OpenFinding
from everstep_controller.core.model.state import CONTROLLER, RollCall, State
from everstep_controller.core.nodes import indexing, isolation_differences, rounds
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, Turn

_S = 1_000_000_000
# In so small a fleet the loss of one node may leave half of it: there a silence decides alone.
SMALL_FLEET = 4
# Peers in so many domains have to say that a node is silent, where there are so many.
_DOMAINS = 2
# How long agents may take to answer a roll call; a new one is called no sooner than this, and later
# where the last one was not answered by most.
_ANSWER_NS = _S
_AGAIN_NS, _AGAIN_IN_VAIN_NS = _S, 5 * _S
# An answer that never comes, as after a stall of the controller, is not waited for any longer.
_VOID_NS = 3 * _S
# So many nodes are named in a finding.
_NAMED_MAX = 4
_ROLL = "roll/"
_KEY = "cut off"
CUT_OFF = "this controller is cut off, or most of the fleet is down"

CONTROLLER_CUT_OFF = Condition(
    name="ControllerCutOff",
    component="controller/network",
    meaning="this controller is cut off, or most of the fleet is down: nodes are silent, and it "
    "hears too little of the others to tell which; the silent nodes stay doubtful, and whatever "
    "trains goes on",
    source="a roll call of all agents, and the failure domains of the peers that were asked about "
    "each silent node",
    clears_when="the silent nodes are heard, or are lost: by the word of peers, when more than half"
    " of the fleet answers again, or of a scheduler, or by 'everstep nodes lost'",
    mode=Mode.ADVISE,
)


def is_small(state: State) -> bool:
    """Return whether a fleet has so few nodes that silence decides alone."""
    return len(state.nodes) <= SMALL_FLEET


def expected(state: State) -> int:
    """Return from how many nodes something is expected, with those that only silence has lost."""
    return state.index.expected.total + len(state.index.presumed_lost)


def listed(state: State) -> list[str]:
    """Return whose answers count in a roll call: nodes with a stream, and not in maintenance."""
    return [
        node.name
        for node in state.nodes.values()
        if node.liveness.connected and not node.gone and node.state is not NodeState.MAINTENANCE
    ]


# --- the roll call -------------------------------------------------------------------------------


def call_where_needed(turn: Reconciliation, node: NodeRecord) -> None:
    """Ask all agents whether they are heard, once peers have denied a node that they could reach.

    It is asked after the peers were: who answers then is on this side of any cut that they saw.
    """
    state, silence = turn.state, node.liveness.silence
    if not silence.denied or is_answered(state, node, turn.now_ns):
        return
    last = state.roll
    if last is not None:
        waits_ns = _VOID_NS
        if last.over:
            waits_ns = _AGAIN_NS if last.by_most else _AGAIN_IN_VAIN_NS
        if turn.now_ns < last.asked_ns + waits_ns:
            return
    reason = f"peers cannot reach {node.name}"
    state.roll = RollCall(f"{_ROLL}{state.event_count}", reason, turn.now_ns, expected(state))
    turn.order(*unanswered_calls(state))


def unanswered_calls(state: State) -> Iterator[CallRoll]:
    """Yield the roll call whose answers have not come."""
    roll = state.roll
    if roll is not None and not roll.over:
        yield CallRoll(
            id=roll.id, reason=roll.reason, expected=roll.expected, timeout_ns=_ANSWER_NS
        )


def is_roll(ping_id: str) -> bool:
    """Return whether a ping is one of a roll call."""
    return ping_id.startswith(_ROLL)


def is_answered(state: State, node: NodeRecord, now_ns: int) -> bool:
    """Return whether a roll call is over that tells of a node's silence, or none is needed."""
    if is_small(state):
        return True
    roll, fresh_ns = state.roll, now_ns - 2 * state.settings.silence_ns
    if roll is None or not roll.over:
        return False
    return roll.asked_ns >= max(node.liveness.silence.denied_since_ns, fresh_ns)


def roll_called(turn: Turn, event: events.RollCalled) -> None:
    """Take the answers to a roll call, and judge by them who is silent."""
    roll = turn.state.roll
    if roll is None or roll.over or roll.id != event.id:
        return
    roll.heard, roll.over = event.heard, True
    for name in turn.state.index.silent:
        node = turn.state.nodes[name]
        if node.liveness.silence.denied:
            node.news.evidence = True
            turn.mark_node(name)


# --- the judgement -------------------------------------------------------------------------------


def why_held(state: State, node: NodeRecord) -> str:
    """Return why a node that nothing answers of is not taken for lost; empty where it is.

    A roll call has been answered since peers were asked about it.
    """
    if is_small(state) or state.roll is None:
        return ""
    if not state.roll.by_most:
        return f"it hears {state.roll.heard} of {state.roll.expected} nodes"
    denied = node.liveness.silence.denied
    if len(denied) < (wanted := rounds.witnesses(state, node)):
        return f"only {len(denied)} of {wanted} peers could be asked"
    own = rounds.controller_domain(state)
    domains = {rounds.independent_domain(state, name) for name in denied} - {own}
    if len(domains) >= _domains_wanted(state, node, own):
        return ""
    where = ", ".join(sorted(domains)) if domains else f"{own}, its own failure domain,"
    return f"only peers in {where} could be asked"


def hold(turn: Reconciliation, node: NodeRecord, why: str) -> None:
    """Take a silent node for no more than doubtful; what peers have denied is asked anew."""
    silence = node.liveness.silence
    silence.held, silence.held_ns = why, turn.now_ns
    silence.denied.clear()
    indexing.note_hearing(turn, node)
    turn.mark_node(node.name)


def asks_in_vain(state: State, node: NodeRecord) -> bool:
    """Return whether no answer about a node would count: at most half of the fleet is heard."""
    return bool(node.liveness.silence.held) and 2 * state.index.heard.total <= expected(state)


def may_be_cut_off(state: State) -> bool:
    """Return whether a silence may be this controller's own: it holds some, or half is silent."""
    return not is_small(state) and (bool(state.index.held) or _is_half_silent(state))


def note_heard(turn: Turn) -> None:
    """Have all that is silent asked about again, when more than half of the fleet is heard again.

    A network heals in one place after the other: silences are borne anew from then on.
    """
    state, heard = turn.state, turn.state.index.heard.total
    if not state.index.held or not 2 * heard > expected(state) >= 2 * (heard - 1):
        return
    for name in state.index.silent:
        node = state.nodes[name]
        node.liveness.silence.held_ns = turn.now_ns
        node.liveness.silence.denied.clear()
        node.news.silent = True
        turn.mark_node(name)


def is_alone(turn: Turn, node: NodeRecord) -> bool:
    """Return whether nobody tells of a silence that at least half of the fleet shares."""
    state, silence = turn.state, node.liveness.silence
    if is_small(state) or silence.held or silence.denied or silence.heard_ns or silence.kernel_ns:
        return False
    away_ns = turn.now_ns - max(node.liveness.silent_since_ns, silence.expected_until_ns)
    return away_ns >= state.settings.agent_return_ns and _is_half_silent(state)


def _is_half_silent(state: State) -> bool:
    return 2 * len(state.index.silent) >= expected(state)


def _domains_wanted(state: State, node: NodeRecord, own: str) -> int:
    """Return in how many domains besides the controller's peers have to deny a node.

    In two, or as many as there are outside its own domain; its peers in its own will do where all
    others are the controller's.
    """
    at = rounds.independent_domain(state, node.name)
    others = _independent_domains(state) - {own}
    return min(_DOMAINS, len(others - {at})) or min(1, len(others))


def _independent_domains(state: State) -> set[str]:
    """Return the first few domains of nodes from which something is expected: enough to count."""
    found: set[str] = set()
    for domain, names in state.index.expected:
        found.update([domain] if domain else names[: _DOMAINS + 2])
        if len(found) >= _DOMAINS + 2:
            break
    return found


# --- the word of others --------------------------------------------------------------------------


def loss_problem(state: State, node: NodeRecord) -> str:
    """Return why a node is not declared lost, and what to do instead; empty where it may be."""
    if state.halted:
        return f"the controller acts on nothing now: {state.halted}"
    if node.state is NodeState.MAINTENANCE:
        return f"{node.name} is in maintenance: nothing is expected of it until that is over"
    if node.liveness.connected and not node.doubtful:
        return (
            f"{node.name} is heard: only a silent node is declared lost; to keep ranks from it: "
            f"everstep isolate {node.name} --reason WHY"
        )
    return ""


def node_declared_lost(turn: Turn, event: events.NodeDeclaredLost) -> None:
    """Take a silent node for lost, because an operator says that it is off."""
    node = turn.state.nodes.get(event.node)
    if node is not None and not loss_problem(turn.state, node):
        tell_lost(turn, node, event.operator, event.reason)


def word_of_scheduler(state: State, node: NodeRecord) -> tuple[str, str]:
    """Return which scheduler does not hear a held node either, and what it says; "" for none."""
    for name, driver in state.drivers.items() if node.liveness.silence.held else ():
        if node.name in driver.down and isolation_differences.is_own(state, name, node.name):
            return name, driver.down[node.name]
    return "", ""


def tell_lost(turn: Turn, node: NodeRecord, who: str, why: str) -> None:
    """Have it that somebody says of a silent node that it is lost, whatever is heard from here."""
    turn.announce(node.name, "NodeDeclaredLost", f"{who} says that {node.name} is lost: {why}")
    node.liveness.lost_by = who
    if not node.gone:
        node.news.told_lost = f"{who} says so: {why}"
    indexing.note_hearing(turn, node)
    turn.mark_node(node.name)


# --- reports to people ---------------------------------------------------------------------------


def tell_people(turn: Reconciliation) -> None:
    """Have a finding say that this controller may be cut off, as long as it holds any node."""
    held, known = turn.state.index.held, turn.state.findings.get(_KEY)
    if not held:
        if known is not None:
            del turn.state.findings[_KEY]
            message = "no silent node waits any more for more of the fleet to be heard"
            turn.announce(CONTROLLER, f"{CONTROLLER_CUT_OFF.name}Cleared", message)
        return
    stay = "is silent, and stays" if len(held) == 1 else "are silent, and stay"
    evidence = f"{_named(held)} {stay} doubtful"
    message = f"{CUT_OFF}: {turn.state.nodes[held[0]].liveness.silence.held}"
    if known is None:
        turn.announce(CONTROLLER, CONTROLLER_CUT_OFF.name, f"{message}; {evidence}")
    elif (known.finding.message, known.finding.evidence) == (message, evidence):
        return
    since_ns = turn.now_ns if known is None else known.since_ns
    turn.state.findings[_KEY] = OpenFinding(_finding(message, evidence), since_ns)


def _finding(message: str, evidence: str) -> Finding:
    return Finding(
        component=CONTROLLER_CUT_OFF.component,
        condition=CONTROLLER_CUT_OFF.name,
        mode=CONTROLLER_CUT_OFF.mode,
        severity=Severity.DEGRADED,
        message=message,
        evidence=evidence,
        suggested_action=SuggestedAction.WATCH,
        rule="see to the controller's uplink; of nodes that you know to be off: everstep nodes "
        "lost NODES --reason WHY",
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


HANDLERS: Handlers = {
    events.RollCalled: roll_called,
    events.NodeDeclaredLost: node_declared_lost,
}
