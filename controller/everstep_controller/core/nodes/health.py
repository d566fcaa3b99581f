"""Node health: transitions and their effects, and judgement by the open findings."""

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_controller.core.model.node import (
    AUTOMATION,
    MAINTENANCE,
    NodeRecord,
    NodeState,
)
from everstep_controller.core.nodes import claims
from everstep_controller.core.nodes.lifecycle import NodeEffect, NodeEvent
from everstep_controller.core.nodes.transition import enter_state
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
