"""Checks of nodes in their lifecycle: their results, and when one is asked again."""

from everstep_common.judging.findings import Severity
from everstep_common.reports import CheckFinished
from everstep_controller.core.events import Reported
from everstep_controller.core.model.node import AUTOMATION, NodeRecord, NodeState
from everstep_controller.core.nodes import claims, orders
from everstep_controller.core.nodes.health import (
    CHECK_FAILED,
    judge_node,
    move_node,
    said,
    was_maintained,
)
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.turn import TimerKind, Turn


def record_check(turn: Turn, event: Reported[CheckFinished]) -> None:
    """Take the result of the newest check of a node."""
    report = event.report
    node = turn.state.nodes[event.origin.node]
    if node.state is not NodeState.VALIDATING or report.order_id != orders.check(node).id:
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
        turn.actions.append(orders.check(node))


def _fatal_finding(turn: Turn, node: NodeRecord) -> str:
    """Return what a check does not show: an open finding that automation would act on."""
    for held in node.findings.values():
        fatal = held.finding.severity is Severity.FATAL and not held.accepted_by
        if fatal and not claims.forbidden(turn, node, held.finding.condition, held.finding.mode):
            return said(held.finding)
    return ""
