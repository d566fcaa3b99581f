"""Outages: agents that fell silent at about the same time are one finding, and not one each.

What they have in common is said of all of them: whether peers hear them, and the failure domains in
which they are. An agent that is told of alone before that stays so.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_common.reports import TcpAnswer
from everstep_controller.core.model.node import NodeRecord, OpenFinding
from everstep_controller.core.model.node_liveness import Silence
from everstep_controller.core.model.state import CONTROLLER, Outage, State
from everstep_controller.core.nodes.agent_findings import AGENT_GONE, AGENT_HUNG
from everstep_controller.core.nodes.evidence import KERNEL_SAYS
from everstep_controller.core.turn import Reconciliation

_S = 1_000_000_000
# So many agents whose silences began within this time of one another are an outage. Three by chance
# within 15 s are one in a month of the largest fleet, where each node fails once in five months.
FEW, FEW_WITHIN_NS = 3, 15 * _S
MANY, MANY_WITHIN_NS = 8, 60 * _S
_TOGETHER = ((FEW, FEW_WITHIN_NS), (MANY, MANY_WITHIN_NS))
# With no more than so many of them away it is over.
_LEFT_MAX = FEW - 1
# So many domains are named in a sentence, and of more nodes than MANY so many.
_NAMED_MAX = 4

AGENTS_CUT_OFF = Condition(
    name="AgentsCutOff",
    component="controller/streams",
    meaning="the streams of some agents broke at about the same time, and they have not come back: "
    "the network of the domains that they share, this controller's own link, or an upgrade; "
    "their nodes are doubtful and not lost, ranks that step go on, and no node has the finding "
    "AgentGone or AgentHung besides",
    source=f"{FEW} agents or more whose silences began within {FEW_WITHIN_NS // _S} s of one "
    f"another, or {MANY} within {MANY_WITHIN_NS // _S} s, 15 s (agent_return_s) after that; what "
    "peers hear of them, and their failure domains",
    clears_when=f"none of them is away, or for 15 s no more than {_LEFT_MAX}; these have findings "
    "of their own then",
    mode=Mode.ADVISE,
)


class _Sign(Enum):
    """What is known of most of the agents that are away."""

    LEFT = "they ended as they were told to, and have not come back"
    HEARD = "their peers hear them"
    HUNG = "their ports accept connects, and nothing else of them answers"
    ENDED = "their kernels refuse connects: the agents have ended"
    UNREACHABLE = "the network says that they are unreachable"
    SILENT = "nothing of them answers"


# --- who belongs to one --------------------------------------------------------------------------


def takes(turn: Reconciliation, node: NodeRecord) -> bool:
    """Return whether a silent agent is reported with others, and have that done."""
    outage = turn.state.outage
    if outage is not None and is_among(turn.state, node.name):
        return True
    near = _near(turn.state, node)
    if not near:
        return False
    if outage is None:
        outage = turn.state.outage = Outage(turn.now_ns)
    outage.nodes = sorted({*outage.nodes, *near})
    grown = len(outage.nodes) >= 2 * outage.told or outage.told < MANY <= len(outage.nodes)
    if grown:
        outage.told = len(outage.nodes)
        finding = _finding(turn.state, outage)
        turn.announce(CONTROLLER, AGENTS_CUT_OFF.name, f"{finding.message}; {finding.evidence}")
    return True


def is_among(state: State, name: str) -> bool:
    """Return whether an agent is reported with others."""
    names = state.outage.nodes if state.outage is not None else []
    at = bisect_left(names, name)
    return at < len(names) and names[at] == name


def is_among_many(state: State, name: str) -> bool:
    """Return whether so many agents are away with one that nothing is done about it alone."""
    outage = state.outage
    many = outage is not None and outage.told >= MANY and len(outage.nodes) > MANY // 2
    return many and is_among(state, name)


def cut_off_count(state: State) -> int:
    """Return how many agents are reported together: by an outage, or by a cut."""
    return len(state.index.held) + (len(state.outage.nodes) if state.outage is not None else 0)


def is_witnessed(silence: Silence) -> bool:
    """Return whether some peer has told of a silence; else it may be the controller's own."""
    return bool(silence.kernel_ns or silence.heard_ns or silence.denied)


def tell_people(turn: Reconciliation) -> None:
    """End an outage when few agents are left of it; from then on each is reported alone.

    When a network is whole again the last agents are back a little later than the first.
    """
    outage = turn.state.outage
    if outage is None:
        return
    if len(outage.nodes) > _LEFT_MAX:
        outage.few_since_ns = 0
        return
    outage.few_since_ns = outage.few_since_ns or turn.now_ns
    few_ns = turn.now_ns - outage.few_since_ns
    if outage.nodes and few_ns < turn.state.settings.agent_return_ns:
        return
    turn.state.outage = None
    are = "is" if len(outage.nodes) == 1 else "are"
    still = f"{_named(outage.nodes)} {are} still away" if outage.nodes else "none is away any more"
    turn.announce(CONTROLLER, f"{AGENTS_CUT_OFF.name}Cleared", f"agents are back: {still}")
    for name in outage.nodes:
        turn.state.nodes[name].news.evidence = True
        turn.mark_node(name)


def _near(state: State, node: NodeRecord) -> list[str]:
    """Return whose silences began at about the time of a node's; none where they are too few.

    Not those that are told of alone. Those that are still being asked are away for as long as it:
    the answers to all of the questions do not come at once.
    """
    if len(state.index.silent) < FEW:
        return []
    since_ns, silent = (
        node.liveness.silent_since_ns,
        (state.nodes[name] for name in state.index.silent),
    )
    apart = {
        one.name: abs(one.liveness.silent_since_ns - since_ns)
        for one in silent
        if not one.liveness.silence.held and not _is_told_alone(one)
    }
    found: list[str] = []
    for count, within_ns in _TOGETHER:
        near = [name for name, apart_ns in apart.items() if apart_ns <= within_ns]
        found = near if len(near) >= count else found
    return found


def _is_told_alone(node: NodeRecord) -> bool:
    told = (held.finding.condition for held in node.health.findings.values())
    return any(condition in (AGENT_GONE.name, AGENT_HUNG.name) for condition in told)


# --- reports to people ---------------------------------------------------------------------------


_BY_KERNEL = {
    KERNEL_SAYS[TcpAnswer.ACCEPTED]: _Sign.HUNG,
    KERNEL_SAYS[TcpAnswer.REFUSED]: _Sign.ENDED,
    KERNEL_SAYS[TcpAnswer.UNREACHABLE]: _Sign.UNREACHABLE,
}
_OF_AGENTS = frozenset({_Sign.LEFT, _Sign.ENDED, _Sign.HUNG})


class _Place(NamedTuple):
    """A failure domain, how many agents are away there, and of how many."""

    domain: str
    away: int
    nodes: int


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield the finding that several agents are away."""
    if state.outage is not None and state.outage.nodes:
        yield OpenFinding(_finding(state, state.outage), state.outage.since_ns)


def _finding(state: State, outage: Outage) -> Finding:
    silences = [state.nodes[name].liveness.silence for name in outage.nodes]
    sign = Counter(map(_sign, silences)).most_common(1)[0][0]
    places = _places(state, outage.nodes)
    total = state.index.expected.total
    return Finding(
        component=AGENTS_CUT_OFF.component,
        condition=AGENTS_CUT_OFF.name,
        mode=AGENTS_CUT_OFF.mode,
        severity=Severity.DEGRADED,
        message=f"{len(outage.nodes)} of {total} agents are away since about the same time: "
        f"{_suspect(sign, places, len(outage.nodes), total)}",
        evidence=f"{sign.value}; {_where(places)}; {_named(outage.nodes)}",
        suggested_action=SuggestedAction.WATCH,
        rule=f"{_next_step(sign, places, outage.nodes)}; cleared when no more than {_LEFT_MAX} of "
        "them are away",
    )


def _sign(silence: Silence) -> _Sign:
    if silence.leaving:
        return _Sign.LEFT
    if silence.heard_ns:
        return _Sign.HEARD
    return _BY_KERNEL.get(silence.kernel_said, _Sign.SILENT)


def _places(state: State, names: Sequence[str]) -> list[_Place]:
    """Return the domains of nodes, those with most of them first; the one they share if there is.

    Domains are paths: all nodes of a pod share the pod, whatever racks they are in.
    """
    away = Counter(state.nodes[name].spec.domain for name in names)
    shared = _shared_path(away)
    if len(away) > 1 and shared:
        below = (listed for domain, listed in state.index.expected if _is_in(domain, shared))
        return [_Place(shared, len(names), sum(map(len, below)))]
    found = [_Place(one, count, len(state.index.expected.of(one))) for one, count in away.items()]
    return sorted(found, key=lambda place: (-place.away, place.domain))


def _shared_path(domains: Counter[str]) -> str:
    paths = [domain.split("/") for domain in domains]
    shared = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return "/".join(shared)


def _is_in(domain: str, path: str) -> bool:
    return domain == path or domain.startswith(f"{path}/")


def _suspect(sign: _Sign, places: Sequence[_Place], away: int, total: int) -> str:
    """Return what is likely at fault."""
    if sign is _Sign.LEFT:
        return "an upgrade, or a unit that does not start again"
    if sign in _OF_AGENTS:
        return "something that all of these agents have alike, as their version or a file system"
    if 2 * away > total:
        return "this controller's own link, or what it listens on"
    if _is_theirs(places):
        return f"the network of {_domains(places)}"
    return "the network between them and this controller"


def _is_theirs(places: Sequence[_Place]) -> bool:
    """Return whether it is whole domains that are away, or nearly so."""
    known = [place for place in places if place.domain]
    return bool(known) and all(2 * place.away > place.nodes for place in known)


def _next_step(sign: _Sign, places: Sequence[_Place], names: Sequence[str]) -> str:
    log = f"'journalctl -u everstep-agent' on {names[0]} says why"
    listed = f"'{_listing(places)}' lists them"
    if sign in _OF_AGENTS:
        return f"{log}; {listed}"
    off = "of nodes that you know to be off: everstep nodes lost NODES --reason WHY"
    return f"see to that first; {listed}, and {log}; {off}"


def _listing(places: Sequence[_Place]) -> str:
    domain = places[0].domain if len(places) == 1 and "/" not in places[0].domain else ""
    return f"everstep nodes --state doubtful{f' --domain {domain}' if domain else ''}"


def _domains(places: Sequence[_Place]) -> str:
    known = [place.domain for place in places if place.domain]
    more = f" and {len(known) - _NAMED_MAX} more" if len(known) > _NAMED_MAX else ""
    return f"{', '.join(known[:_NAMED_MAX])}{more}"


def _where(places: Sequence[_Place]) -> str:
    known = [place for place in places if place.domain]
    if not known:
        return "their failure domains are not known"
    told = [f"{place.away} of {place.nodes} in {place.domain}" for place in known[:_NAMED_MAX]]
    more = f" and {len(known) - _NAMED_MAX} more" if len(known) > _NAMED_MAX else ""
    return f"{', '.join(told)}{more}"


def _named(names: Sequence[str]) -> str:
    if len(names) <= MANY:
        return ", ".join(names)
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more}"
