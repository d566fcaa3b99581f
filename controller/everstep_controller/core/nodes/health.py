"""Node health: findings, checks and operators' words, and what they mean for a node."""

from collections.abc import Iterable

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity
from everstep_common.reports import CheckFinished, FindingCleared, FindingRaised
from everstep_controller.core.events import (
    OperatorDrained,
    OperatorIsolated,
    OperatorReleased,
    Reported,
    VerdictChanged,
)
from everstep_controller.core.model.node import (
    AUTOMATION,
    MAINTENANCE,
    OPERATOR,
    FindingOwner,
    NodeRecord,
    NodeState,
    OpenFinding,
)
from everstep_controller.core.nodes import claims, lifecycle
from everstep_controller.core.nodes.lifecycle import NodeEffect, NodeEvent, enter_state
from everstep_controller.core.turn import TimerKind, Turn

# A condition without a finding: operators set by its name how far automation goes with such nodes.
CHECK_FAILED = Condition(
    name="CheckFailed",
    component="node",
    meaning="the node failed the check that it is asked for when it joins, comes back or was "
    "repaired: it takes no ranks",
    source="the check's own limits",
    clears_when="it passes a check; one that may not be isolated is asked again every 30 s",
    mode=Mode.ENFORCE,
)


def move_node(turn: Turn, node: NodeRecord, event: NodeEvent, reason: str) -> None:
    """Take a node through its lifecycle table."""
    for effect in enter_state(turn, node, event, reason):
        _apply(turn, node, effect, reason)


def probation_over(turn: Turn, name: str) -> None:
    """A node has been good for as long as it had to show it."""
    if name in turn.state.nodes:
        move_node(turn, turn.state.nodes[name], NodeEvent.PROBATION_OVER, "its probation is over")


def _apply(turn: Turn, node: NodeRecord, effect: NodeEffect, reason: str) -> None:
    if effect is NodeEffect.RELEASE:
        claims.unclaim(turn, node, AUTOMATION, reason)
        if was_maintained(node):
            claims.end_maintenance(turn, node, reason)
        retry_deferred(turn)
    elif effect is NodeEffect.START_PROBATION:
        turn.set_timer(f"{TimerKind.PROBATION}/{node.name}", turn.state.settings.probation_ns)


def was_maintained(node: NodeRecord) -> bool:
    """Return whether a node has a claim of a window that has begun, not only of one to come."""
    claim = node.claim_of(MAINTENANCE)
    return claim is not None and not claim.draining


def judge_node(turn: Turn, node: NodeRecord, over: str = "") -> None:
    """Judge a node by its open findings, as far as each one's mode allows; ``over``: what ended."""
    node.deferred = ""
    if node.state is NodeState.MAINTENANCE:
        return
    held = (one for one in node.findings.values() if not one.accepted_by)
    acted_on = [
        one.finding
        for one in held
        if claims.mode_of(turn.state, one.finding.condition, one.finding.mode) is not Mode.OBSERVE
    ]
    fatal = [finding for finding in acted_on if finding.severity is Severity.FATAL]
    degraded = [finding for finding in acted_on if finding.severity is Severity.DEGRADED]
    for finding in fatal:
        forbidden = claims.forbidden(turn, node, finding.condition, finding.mode)
        if not forbidden:
            move_node(turn, node, NodeEvent.FATAL_FINDING, said(finding))
            return
        _defer(turn, node, said(finding), forbidden)
    if fatal or degraded:
        worst = said((fatal + degraded)[0])
        move_node(turn, node, NodeEvent.DEGRADED_FINDING, worst)
        if node.state is NodeState.SUSPECT:
            node.reason = worst  # the finding that made it suspect may be over, and this one not
    else:
        # Findings that are only observed, or that somebody has accepted, may still be open.
        move_node(turn, node, NodeEvent.CLEARED, f"{over}no open finding counts against it")


def said(finding: Finding) -> str:
    """Return the sentence of a finding; one that was made on purpose says so everywhere."""
    return f"{finding.message} [injected]" if finding.injected else finding.message


def _defer(turn: Turn, node: NodeRecord, message: str, forbidden: str) -> None:
    if not node.deferred:
        node.deferred = message
        turn.announce(
            node.name,
            "IsolationAdvised",
            f"{node.name} should be isolated ({message}), but {forbidden}; "
            f"to do it: everstep isolate {node.name} --reason …",
        )


def retry_deferred(turn: Turn) -> None:
    """Judge again the nodes that automation was not allowed to isolate."""
    for node in list(turn.state.nodes.values()):
        if node.deferred:
            judge_node(turn, node)


def finding_raised(turn: Turn, event: Reported[FindingRaised]) -> None:
    """Take a finding of an agent and judge what it means for its node."""
    node = turn.state.nodes[event.origin.node]
    _raise_finding(turn, node, OpenFinding(event.report.finding, event.at_ns, FindingOwner.AGENT))


def finding_cleared(turn: Turn, event: Reported[FindingCleared]) -> None:
    """Close a finding of an agent on the evidence of its node."""
    node = turn.state.nodes[event.origin.node]
    _clear_finding(turn, node, _finding_name(FindingOwner.AGENT, event.report.key), event.report)


def verdict_changed(turn: Turn, event: VerdictChanged) -> None:
    """Take what a judge of the controller finds about a node, or finds over."""
    node = turn.state.nodes.get(event.node)
    if node is None:
        return
    if event.finding is not None:
        _raise_finding(turn, node, OpenFinding(event.finding, turn.now_ns))
    else:
        _clear_finding(turn, node, _finding_name(FindingOwner.CONTROLLER, event.key), event)


def replace_agent_findings(node: NodeRecord, findings: Iterable[Finding], now_ns: int) -> None:
    """Have exactly these findings of its agent open on a node; those of the controller stay."""
    kept = {k: held for k, held in node.findings.items() if held.owner is not FindingOwner.AGENT}
    for finding in findings:
        name = _finding_name(FindingOwner.AGENT, finding.key)
        fresh = OpenFinding(finding, now_ns, FindingOwner.AGENT)
        kept[name] = node.findings.get(name, fresh)
    node.findings = kept


# -------------------------------------------------------------------------------------------------


def _finding_name(owner: FindingOwner, key: FindingKey) -> str:
    return f"{owner.value} {key.component} {key.condition}"


def _raise_finding(turn: Turn, node: NodeRecord, found: OpenFinding) -> None:
    finding, name = found.finding, _finding_name(found.owner, found.finding.key)
    known = node.findings.get(name)
    if known is not None:
        found.since_ns = known.since_ns
    node.findings[name] = found
    turn.announce(
        node.name,
        finding.condition,
        f"{finding.severity.value} on {node.name}: {said(finding)}",
    )
    judge_node(turn, node)
    turn.mark_node(node.name)


def _clear_finding(
    turn: Turn, node: NodeRecord, name: str, cleared: FindingCleared | VerdictChanged
) -> None:
    if node.findings.pop(name, None) is None:
        return
    condition = cleared.key.condition
    turn.announce(
        node.name,
        f"{condition}Cleared",
        f"{condition} is over on {node.name}: {cleared.evidence}",
    )
    judge_node(turn, node, f"{condition} of {cleared.key.component} is over: ")


def record_check(turn: Turn, event: Reported[CheckFinished]) -> None:
    """Take the result of the newest check of a node."""
    report = event.report
    node = turn.state.nodes[event.origin.node]
    if node.state is not NodeState.VALIDATING or report.order_id != lifecycle.check_order(node).id:
        return
    problem = _fatal_finding(turn, node) if report.passed else report.message
    if problem and claims.forbidden(turn, node, CHECK_FAILED.name, CHECK_FAILED.mode):
        # Automation may not isolate it, but need not use it either: it is asked again.
        node.reason = f"its check failed: {problem}"
        turn.set_timer(f"{TimerKind.CHECK}/{node.name}", turn.state.settings.recheck_ns)
    elif problem:
        move_node(turn, node, NodeEvent.CHECK_FAILED, problem)
    else:
        node.spare_check.passed_ns, node.spare_check.failed = turn.now_ns, ""
        again = node.claim_of(AUTOMATION) is not None or was_maintained(node)
        word = NodeEvent.RECHECK_PASSED if again else NodeEvent.CHECK_PASSED
        move_node(turn, node, word, report.message)
    judge_node(turn, node)


def check_again(turn: Turn, name: str) -> None:
    """Ask a node once more that failed its check and was not isolated for it."""
    node = turn.state.nodes.get(name)
    if node is not None and node.state is NodeState.VALIDATING:
        node.checks += 1
        turn.actions.append(lifecycle.check_order(node))


def _fatal_finding(turn: Turn, node: NodeRecord) -> str:
    """Return what a check does not show: an open finding that automation would act on."""
    for held in node.findings.values():
        fatal = held.finding.severity is Severity.FATAL and not held.accepted_by
        if fatal and not claims.forbidden(turn, node, held.finding.condition, held.finding.mode):
            return said(held.finding)
    return ""


def operator_isolated(turn: Turn, event: OperatorIsolated) -> None:
    """Put an operator's claim on a node."""
    node = turn.state.nodes[event.node]
    claims.claim(turn, node, OPERATOR, f"{event.operator}: {event.reason}")


def operator_drained(turn: Turn, event: OperatorDrained) -> None:
    """Keep new ranks from a node; what runs there is moved as planned work."""
    node = turn.state.nodes[event.node]
    claims.drain(turn, node, OPERATOR, f"{event.operator}: {event.reason}")


def operator_released(turn: Turn, event: OperatorReleased) -> None:
    """Remove an operator's claim, and take the operator's word that the node was repaired."""
    node = turn.state.nodes[event.node]
    reason = f"{event.operator}: {event.reason}" if event.reason else event.operator
    claims.unclaim(turn, node, OPERATOR, reason)
    for held in node.findings.values():
        held.accepted_by = event.operator
    move_node(turn, node, NodeEvent.REPAIRED, f"repaired, says {reason}")
