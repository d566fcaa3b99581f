"""What happens to nodes: connections, findings, checks and operators' words."""

from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_controller.core import (
    blaming,
    check_orders,
    claims,
    injections,
    jobs,
    late,
    node_moving,
    orders,
    spare_checks,
)
from everstep_controller.core.events import (
    CheckFinished,
    FindingCleared,
    FindingRaised,
    NodeConnected,
    OperatorDrained,
    OperatorIsolated,
    OperatorReleased,
)
from everstep_controller.core.node_lifecycle import NodeEffect, NodeEvent
from everstep_controller.core.state import (
    AUTOMATION,
    MAINTENANCE,
    OPERATOR,
    NodeRecord,
    NodeState,
    OpenFinding,
)
from everstep_controller.core.turn import Turn

# The condition under which an operator sets the mode of failed checks.
CHECK_FAILED = "CheckFailed"


def move(turn: Turn, node: NodeRecord, event: NodeEvent, reason: str) -> None:
    """Take a node through its lifecycle table."""
    before = node.state
    for effect in node_moving.enter(turn, node, event, reason):
        _apply(turn, node, effect, reason)
    if not node.usable:
        jobs.node_unusable(turn, node)
    elif not before_usable(before):
        jobs.capacity_changed(turn)


def before_usable(state: NodeState) -> bool:
    """Return whether a node in this state could take ranks but for its claims."""
    return state in (NodeState.HEALTHY, NodeState.SUSPECT, NodeState.PROBATION)


def _apply(turn: Turn, node: NodeRecord, effect: NodeEffect, reason: str) -> None:
    if effect is NodeEffect.RELEASE:
        claims.unclaim(turn, node, AUTOMATION, reason)
        if _was_maintained(node):
            claims.end_maintenance(turn, node, reason)
        retry_deferred(turn)
    elif effect is NodeEffect.START_PROBATION:
        turn.set_timer(f"probation/{node.name}", turn.state.settings.probation_ns)


def _was_maintained(node: NodeRecord) -> bool:
    """Return whether a node has a claim of a window that has begun, not only of one to come."""
    claim = node.claim_of(MAINTENANCE)
    return claim is not None and not claim.draining


def connected(turn: Turn, event: NodeConnected) -> None:
    """Take what an agent says of its node when its stream opens."""
    node = turn.state.nodes.setdefault(event.node, NodeRecord(event.node, since_ns=turn.now_ns))
    turn.nodes_changed.add(node.name)
    node.absent = False
    rebooted = bool(node.boot_id) and node.boot_id != event.boot_id
    node.connected, node.silent_since_ns = True, 0
    node.silent_to, node.confirmation = [], None
    node.boot_id, node.agent_version = event.boot_id, event.agent_version
    if node.outbox and node.outbox != event.outbox:
        turn.state.outboxes.pop(node.outbox, None)
    node.outbox = event.outbox
    node.host, node.domain, node.inventory = event.host, event.domain, event.inventory
    node.bulk_address, node.liveness_address = event.bulk_address, event.liveness_address
    turn.drop_timer(f"stream/{node.name}")
    turn.drop_timer(f"confirm/{node.name}")
    jobs.node_back(turn, node, {} if rebooted else {seen.job: seen for seen in event.jobs})
    late.node_back(turn, node.name, () if rebooted else event.jobs)
    node.findings = {
        key: node.findings.get(key, OpenFinding(finding, turn.now_ns))
        for finding in event.open_findings
        for key in [f"{finding.component} {finding.condition}"]
    }
    reason = "its agent connected after a reboot" if rebooted else "its agent connected"
    move(turn, node, NodeEvent.CONNECTED, reason)
    reconsider(turn, node)
    injections.connected(turn, node)
    turn.actions.extend(orders.for_node(turn.state, node))
    if node.usable:
        jobs.capacity_changed(turn)


def finding_raised(turn: Turn, event: FindingRaised) -> None:
    """Take a finding and judge what it means for its node."""
    node = turn.state.nodes[event.origin.node]
    key = f"{event.finding.component} {event.finding.condition}"
    since_ns = node.findings[key].since_ns if key in node.findings else event.at_ns
    node.findings[key] = OpenFinding(event.finding, since_ns)
    turn.announce(
        node.name,
        event.finding.condition,
        f"{event.finding.severity.value} on {node.name}: {said(event.finding)}",
    )
    reconsider(turn, node)
    blaming.finding_came(turn, node)


def finding_cleared(turn: Turn, event: FindingCleared) -> None:
    """Close a finding on the evidence of its node."""
    node = turn.state.nodes[event.origin.node]
    closed = node.findings.pop(f"{event.key.component} {event.key.condition}", None)
    if closed is not None:
        turn.announce(
            node.name,
            f"{event.key.condition}Cleared",
            f"{event.key.condition} is over on {node.name}: {event.evidence}",
        )
        reconsider(turn, node, f"{event.key.condition} of {event.key.component} is over: ")


def reconsider(turn: Turn, node: NodeRecord, over: str = "") -> None:
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
            move(turn, node, NodeEvent.FATAL_FINDING, said(finding))
            return
        _defer(turn, node, said(finding), forbidden)
    if fatal or degraded:
        worst = said((fatal + degraded)[0])
        move(turn, node, NodeEvent.DEGRADED_FINDING, worst)
        if node.state is NodeState.SUSPECT:
            node.reason = worst  # the finding that made it suspect may be over, and this one not
    else:
        # Others may be open, and come later, that are only observed or that somebody has accepted.
        move(turn, node, NodeEvent.CLEARED, f"{over}no open finding counts against it")


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
            reconsider(turn, node)


def check_finished(turn: Turn, event: CheckFinished) -> None:
    """Take the result of the newest check of a node."""
    node = turn.state.nodes[event.origin.node]
    if spare_checks.finished(turn, node, event):
        return
    if node.state is not NodeState.VALIDATING or event.order_id != check_orders.check(node).id:
        return
    problem = _fatal_finding(turn, node) if event.passed else event.message
    if problem and claims.forbidden(turn, node, CHECK_FAILED):
        # Automation may not isolate it, but need not use it either: it is asked again.
        node.reason = f"its check failed: {problem}"
        turn.set_timer(f"check/{node.name}", turn.state.settings.recheck_ns)
    elif problem:
        move(turn, node, NodeEvent.CHECK_FAILED, problem)
    else:
        spare_checks.passed_otherwise(turn, node)
        again = node.claim_of(AUTOMATION) is not None or _was_maintained(node)
        word = NodeEvent.RECHECK_PASSED if again else NodeEvent.CHECK_PASSED
        move(turn, node, word, event.message)
    reconsider(turn, node)


def check_again(turn: Turn, node: NodeRecord) -> None:
    """Ask a node once more that failed its check and was not isolated for it."""
    if node.state is NodeState.VALIDATING:
        node.checks += 1
        turn.actions.append(check_orders.check(node))


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
    jobs.node_unusable(turn, node)


def operator_drained(turn: Turn, event: OperatorDrained) -> None:
    """Keep new ranks from a node; what runs there is moved as planned work."""
    node = turn.state.nodes[event.node]
    claims.drain(turn, node, OPERATOR, f"{event.operator}: {event.reason}")


def operator_released(turn: Turn, event: OperatorReleased) -> None:
    """Remove an operator's claim, and take the operator's word that the node was repaired."""
    node = turn.state.nodes[event.node]
    reason = f"{event.operator}: {event.reason}" if event.reason else event.operator
    had_claim = claims.unclaim(turn, node, OPERATOR, reason)
    for held in node.findings.values():
        held.accepted_by = event.operator
    move(turn, node, NodeEvent.REPAIRED, f"repaired, says {reason}")
    if had_claim and node.usable:
        jobs.capacity_changed(turn)
