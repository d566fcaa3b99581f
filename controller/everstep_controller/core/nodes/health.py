"""Node health: what findings, checks, deaths and operators' words mean for a node."""

from collections.abc import Sequence
from dataclasses import dataclass

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Mode, Severity
from everstep_controller.core import events
from everstep_controller.core.events import OperatorDrained, OperatorIsolated, OperatorReleased
from everstep_controller.core.model.node import (
    AUTOMATION,
    NodeNews,
    NodeRecord,
    NodeState,
    OpenFinding,
)
from everstep_controller.core.model.state import State, current_name
from everstep_controller.core.nodes import checks, claims, evidence_age, indexing, lifecycle
from everstep_controller.core.nodes.findings import finding_sentence
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# A condition without a finding: operators set by its name how far automation goes with such nodes.
RANKS_DIE = Condition(
    name="RanksDie",
    component="node",
    meaning="ranks died on the node in a way that only the node explains: its ranks move to other"
    " nodes and it is checked",
    source="how the ranks of a generation died, what its nodes found within evidence_window_s, and "
    "deaths that nothing explained within strike_window_s",
    clears_when="the node passes its check",
    mode=Mode.ENFORCE,
)


def probation_over(turn: Turn, name: str) -> None:
    """A node has been good for as long as it had to show it."""
    turn.mark_node(name)


def operator_isolated(turn: Turn, event: OperatorIsolated) -> None:
    """Put an operator's claim on a node."""
    node = turn.state.nodes[current_name(turn.state, event.node)]
    claims.record_operator_claim(turn, node, f"{event.operator}: {event.reason}")


def operator_drained(turn: Turn, event: OperatorDrained) -> None:
    """Keep new ranks from a node; what runs there is moved as planned work."""
    node = turn.state.nodes[current_name(turn.state, event.node)]
    claims.record_operator_drain(turn, node, f"{event.operator}: {event.reason}")


def operator_released(turn: Turn, event: OperatorReleased) -> None:
    """Remove an operator's claim, and take the operator's word that the node was repaired."""
    node = turn.state.nodes[current_name(turn.state, event.node)]
    reason = f"{event.operator}: {event.reason}" if event.reason else event.operator
    claims.record_operator_release(turn, node, reason)
    for held in node.health.findings.values():
        if event.accepted is None or claims.is_borne(held, event.accepted):
            held.accepted_by = event.operator
    node.blame.reason, node.health.checks_failed, node.news.repaired = (
        "",
        0,
        f"repaired, says {reason}",
    )
    turn.mark_node(node.name)


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Judge a node by the news of it, and then by all that is known of it."""
    news, node.news = node.news, NodeNews()
    if news.connected:
        lifecycle.move_node(turn, node, NodeEvent.CONNECTED, news.connected)
    if node.state is NodeState.MAINTENANCE:
        _advise(turn, node, None)
        return
    checks.judge_checks(turn, node, news)
    if news.repaired:
        lifecycle.move_node(turn, node, NodeEvent.REPAIRED, news.repaired)
    if node.state is NodeState.PROBATION and not turn.has_timer(TimerKind.PROBATION, node.name):
        lifecycle.move_node(turn, node, NodeEvent.PROBATION_OVER, "its probation is over")
    advised = _judge_findings(turn, node, news.cleared) or _judge_blame(turn, node)
    _advise(turn, node, advised)


@dataclass(frozen=True, slots=True)
class _Advice:
    """Advice to people to do what automation may not: why, what, and what forbids it."""

    reason: str
    what: str
    refusal: claims.Refusal


def _judge_findings(turn: Reconciliation, node: NodeRecord, cleared: str) -> _Advice | None:
    """Judge a node by its open findings, as far as the mode and the age of each one allow."""
    found = _findings_that_count(turn.state, node)
    counting = [held for held in found if not evidence_age.objection(node, held, turn.now_ns)]
    isolated, advice = _isolate_by(turn, node, counting)
    if isolated:
        return None
    aged = any(not held.late for held in found if held not in counting)
    if aged and node.state in (NodeState.SUSPECT, NodeState.REPAIRING):
        return advice  # nothing begins by what was seen long ago, and nothing ends by its age
    if counting:
        worst = finding_sentence(counting[0].finding)
        lifecycle.move_node(turn, node, NodeEvent.DEGRADED_FINDING, worst)
        if node.state is NodeState.SUSPECT:
            node.reason = worst  # the finding that made it suspect may be over, and this one not
        if node.state is NodeState.REPAIRING and cleared and not node.health.check_failed:
            reason = f"{cleared}what is open does not keep it out"
            lifecycle.move_node(turn, node, NodeEvent.CLEARED, reason)
    elif not node.health.check_failed and not _is_kept_for_open(node):
        # Findings that are only observed, or that somebody has accepted, may still be open.
        reason = f"{cleared}no open finding counts against it"
        lifecycle.move_node(turn, node, NodeEvent.CLEARED, reason)
    return advice


def _isolate_by(
    turn: Reconciliation, node: NodeRecord, counting: Sequence[OpenFinding]
) -> tuple[bool, _Advice | None]:
    """Isolate a node by the first fatal finding by which automation may, else advise to do so."""
    advice: _Advice | None = None
    for finding in (held.finding for held in counting):
        if finding.severity is not Severity.FATAL:
            continue
        refusal = claims.refusal(turn, node, finding.condition, finding.mode)
        if refusal is None:
            reason = finding_sentence(finding)
            lifecycle.move_node(turn, node, NodeEvent.FATAL_FINDING, reason, finding.condition)
            return True, None
        advice = advice or _Advice(finding_sentence(finding), "isolated", refusal)
    return False, advice


def _is_kept_for_open(node: NodeRecord) -> bool:
    """Return whether a node is isolated for what is open still, and only observed by now.

    A mode that is lowered has automation do nothing more: it gives nothing back either.
    """
    claim = node.claim_of(AUTOMATION)
    if claim is None or node.state is not NodeState.REPAIRING:
        return False
    found = (held for held in node.health.findings.values() if held.counts_against_node)
    return any(
        one.finding.condition == claim.condition and one.finding.severity is Severity.FATAL
        for one in found
    )


def _findings_that_count(state: State, node: NodeRecord) -> list[OpenFinding]:
    """Return the ones about the node that nobody wants only observed, fatal ones first."""
    found = [
        held
        for held in node.health.findings.values()
        if held.counts_against_node
        and held.finding.severity is not Severity.INFO
        and state.mode_of(node, held.finding.condition, held.finding.mode) is not Mode.OBSERVE
    ]
    return sorted(found, key=lambda held: held.finding.severity is not Severity.FATAL)


def _judge_blame(turn: Reconciliation, node: NodeRecord) -> _Advice | None:
    """Have a node give up its ranks that is blamed for deaths there, and be checked."""
    if not node.blame.reason:
        return None
    if refusal := claims.refusal(turn, node, RANKS_DIE.name, RANKS_DIE.mode):
        return _Advice(node.blame.reason, "replaced and checked", refusal)
    reason, node.blame.reason = node.blame.reason, ""
    node.blame.strikes.clear()
    node.blame.hangs.clear()
    lifecycle.move_node(turn, node, NodeEvent.BLAMED, reason, RANKS_DIE.name)
    return None


def _advise(turn: Turn, node: NodeRecord, advice: _Advice | None) -> None:
    """Say once what automation would do to a node if it were allowed to."""
    before, node.isolation.deferred = (
        node.isolation.deferred,
        advice.reason if advice is not None else "",
    )
    by_budget = advice is not None and advice.refusal.by_budget
    held_back = advice.refusal.why if advice is not None and by_budget else ""
    node.isolation.held_back_ns = (node.isolation.held_back_ns or turn.now_ns) if held_back else 0
    node.isolation.held_back = held_back
    if node.isolation.deferred == before:
        return
    turn.mark_node(node.name)
    indexing.refresh(turn, node)
    if advice is not None:
        turn.announce(
            node.name,
            "IsolationAdvised",
            f"{node.name} should be {advice.what} ({advice.reason}), but {advice.refusal.why}; "
            f"to do it: everstep isolate {node.name} --reason …",
        )


HANDLERS: Handlers = {
    events.OperatorIsolated: operator_isolated,
    events.OperatorReleased: operator_released,
    events.OperatorDrained: operator_drained,
}
TIMERS: Timers = {
    TimerKind.PROBATION: probation_over,
}
