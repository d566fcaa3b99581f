"""Flapping streams: an agent whose stream ends again and again is a finding, and gets ranks last.

Each of its silences is too short to be one: it comes back before it is judged to be away, and
whatever it has not done by then is asked anew of what may be a new agent.
"""

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.nodes import findings, indexing
from everstep_controller.core.registry import Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

_MINUTE_NS = 60_000_000_000
# So many ends within this time are flapping: an agent that is updated or restarted ends once or
# twice …
ENDS = 6
WITHIN_NS = 10 * _MINUTE_NS
# … and it is over when a stream has been open for this long.
QUIET_NS = 10 * _MINUTE_NS
# Where more nodes than this share flap, or than one, the cause is no node.
_SHARE_MAX = 0.2

STREAM_FLAPPING = Condition(
    name="StreamFlapping",
    component="agent/stream",
    meaning="the stream of the node's agent ends again and again; ranks that step go on, the node "
    "takes new ones only where no other node can, and a reconnect gives its agent no more time to "
    "carry out orders; for a fifth of the nodes at most, because what all have alike is no node's "
    "fault",
    source="6 ends of its streams within 10 min",
    clears_when="its stream has been open for 10 min",
    mode=Mode.ADVISE,
)


def record_end(turn: Turn, node: NodeRecord, reason: str = "") -> None:
    """Take note that a stream has ended, or that another one took its place."""
    if node.state is NodeState.MAINTENANCE:
        return
    node.streams.reason = reason or node.streams.reason
    node.streams.ends_ns = [*node.streams.ends_ns, turn.now_ns][-ENDS:]
    turn.mark_node(node.name)


def stays_open(turn: Turn, name: str) -> None:
    """A stream may have been open for long enough."""
    turn.mark_node(name)


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Judge whether a node's streams flap."""
    if node.gone:
        node.streams.ends_ns = []
    ends = node.streams.ends_ns
    if node.streams.flaps_since_ns:
        if not ends or turn.now_ns - ends[-1] >= QUIET_NS:
            _end_flapping(turn, node)
        elif not turn.has_timer(TimerKind.STREAM, node.name):
            turn.set_timer(f"{TimerKind.STREAM}/{node.name}", ends[-1] + QUIET_NS - turn.now_ns)
    elif len(ends) == ENDS and turn.now_ns - ends[0] <= WITHIN_NS and not _is_everywhere(turn):
        _begin_flapping(turn, node)


def _is_everywhere(turn: Turn) -> bool:
    most = max(1, int(len(turn.state.nodes) * _SHARE_MAX))
    return len(turn.state.index.flapping) >= most


def _begin_flapping(turn: Reconciliation, node: NodeRecord) -> None:
    node.streams.flaps_since_ns = node.streams.ends_ns[0]
    indexing.refresh(turn, node)
    findings.raise_finding(turn, node, _finding(node))
    turn.set_timer(f"{TimerKind.STREAM}/{node.name}", QUIET_NS)


def _end_flapping(turn: Reconciliation, node: NodeRecord) -> None:
    node.streams.flaps_since_ns, node.streams.ends_ns, node.streams.reason = 0, [], ""
    indexing.refresh(turn, node)
    turn.drop_timer(f"{TimerKind.STREAM}/{node.name}")
    evidence = "it is lost" if node.gone else "its stream has been open for 10 min"
    findings.clear_finding(turn, node, _finding(node).key, evidence)
    turn.mark_node(node.name)


def _finding(node: NodeRecord) -> Finding:
    return Finding(
        component=STREAM_FLAPPING.component,
        condition=STREAM_FLAPPING.name,
        mode=STREAM_FLAPPING.mode,
        severity=Severity.DEGRADED,
        message=f"the stream of its agent ended {ENDS} times within 10 min",
        evidence=node.streams.reason,
        suggested_action=SuggestedAction.WATCH,
        rule="see 'journalctl -u everstep-agent' on the node, and the network between it and the "
        "controller; cleared when the stream has been open for 10 min",
    )


TIMERS: Timers = {TimerKind.STREAM: stays_open}
