"""Checks of nodes: what the newest one said, and when a node is checked once more."""

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.reports import CheckFinished
from everstep_controller.core.events import Reported
from everstep_controller.core.model.node import AUTOMATION, NodeNews, NodeRecord, NodeState
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.nodes import (
    claims,
    evidence_age,
    findings,
    lifecycle,
    unanswered_orders,
)
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.registry import Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# A condition without a finding: operators set by its name how far automation goes with such nodes.
CHECK_FAILED = Condition(
    name="CheckFailed",
    component="node",
    meaning="the node failed the check that is made when it joins, comes back or was repaired: it"
    " takes no ranks",
    source="the check's own limits",
    clears_when="it passes a check; it is checked again after 30 s (recheck_s), then ever more "
    "seldom, up to every 15 min (recheck_max_s)",
    mode=Mode.ENFORCE,
)

# A failed check is repeated after twice as long each time, so often; and so many checks that are
# not answered are a finding.
_DOUBLED_MAX = 16
_UNANSWERED_MAX = 2


def record_check(turn: Turn, event: Reported[CheckFinished]) -> None:
    """Take the result of the newest check of a node."""
    node = turn.state.nodes[event.origin.node]
    unanswered_orders.record_answer(turn, node, "its agent has answered a check")
    if event.report.order_id == lifecycle.check_order(node).id:
        node.news.check = event.report
        turn.mark_node(node.name)


def check_due(turn: Turn, name: str) -> None:
    """A node has not answered its check in time, or failed it and is to be checked once more."""
    node = turn.state.nodes.get(name)
    if node is None:
        return
    if (
        node.state is NodeState.VALIDATING
        and not node.health.check_failed
        and node.liveness.connected
    ):
        node.health.checks_unanswered += 1
    node.health.check_failed = ""
    node.news.check_due, node.news.cleared = True, "its check is due again: "
    turn.mark_node(name)


def judge_checks(turn: Reconciliation, node: NodeRecord, news: NodeNews) -> None:
    """Judge a node that is being validated by its check, or have it checked once more."""
    if news.check_due and node.state is NodeState.VALIDATING:
        _ask_again(turn, node)
    if news.check is not None and node.state is NodeState.VALIDATING:
        _judge_check(turn, node, news.check)


def _judge_check(turn: Reconciliation, node: NodeRecord, report: CheckFinished) -> None:
    failed = "" if report.passed else report.message or "its agent does not say why"
    found = None if failed else _fatal_finding(turn, node)
    problem = findings.finding_sentence(found) if found is not None else failed
    node.health.checks_unanswered = 0
    if not problem:
        node.blame.reason, node.health.checks_failed = "", 0
        turn.drop_timer(f"{TimerKind.CHECK}/{node.name}")
        node.spare_check.passed_ns, node.spare_check.failed = turn.now_ns, ""
        again = node.claim_of(AUTOMATION) is not None or claims.is_maintained(node)
        word = NodeEvent.RECHECK_PASSED if again else NodeEvent.CHECK_PASSED
        lifecycle.move_node(turn, node, word, report.message)
        return
    refused = claims.refusal(turn, node, CHECK_FAILED.name, CHECK_FAILED.mode)
    if refused is not None:
        # Automation may not isolate it, but need not use it either.
        node.reason = f"its check failed: {problem}"
        if refused.by_budget:
            claims.unclaim(turn, node, AUTOMATION, refused.why)
    else:
        condition = found.condition if found is not None else CHECK_FAILED.name
        lifecycle.move_node(turn, node, NodeEvent.CHECK_FAILED, problem, condition)
    node.health.check_failed = failed
    turn.set_timer(f"{TimerKind.CHECK}/{node.name}", _recheck_ns(turn.state.settings, node))
    node.health.checks_failed += 1


def _recheck_ns(settings: Settings, node: NodeRecord) -> int:
    """Return when a failed check is repeated: twice as late each time, up to a limit."""
    after_ns = settings.recheck_ns << min(node.health.checks_failed, _DOUBLED_MAX)
    return min(after_ns, max(settings.recheck_ns, settings.recheck_max_ns))


def _ask_again(turn: Reconciliation, node: NodeRecord) -> None:
    """Have a node checked once more; one whose agent does not answer twice is a finding."""
    if not node.liveness.connected:
        return  # it is checked when its agent connects
    lifecycle.check_anew(turn, node)
    if node.health.checks_unanswered >= _UNANSWERED_MAX:
        message = f"{node.name}: its agent is connected, and has not answered its check"
        unanswered_orders.record_unanswered(
            turn, node, f"{message}, {node.health.checks_unanswered} times"
        )


def _fatal_finding(turn: Turn, node: NodeRecord) -> Finding | None:
    """Return what a check does not show: an open finding that automation would act on."""
    for held in node.health.findings.values():
        finding = held.finding
        fatal = finding.severity is Severity.FATAL and held.counts_against_node
        if not fatal or evidence_age.objection(node, held, turn.now_ns):
            continue
        if not claims.refusal(turn, node, finding.condition, finding.mode):
            return finding
    return None


TIMERS: Timers = {
    TimerKind.CHECK: check_due,
}
