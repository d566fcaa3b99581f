"""Node health: findings, checks and operators' words, and what they mean for a node."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from everstep_common import reports
from everstep_common.judging.book import Cleared
from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import (
    Finding,
    FindingKey,
    Mode,
    Severity,
    SuggestedAction,
)
from everstep_common.judging.flapping import Flapping, is_news
from everstep_common.reports import CheckFinished, FindingCleared, FindingRaised
from everstep_controller.core import events
from everstep_controller.core.actions import About, Topic
from everstep_controller.core.events import (
    FindingSettled,
    OperatorDrained,
    OperatorIsolated,
    OperatorReleased,
    Reported,
    VerdictChanged,
)
from everstep_controller.core.model.node import (
    AUTOMATION,
    FindingOwner,
    NodeNews,
    NodeRecord,
    NodeState,
    OpenFinding,
)
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import CONTROLLER, State, current_name
from everstep_controller.core.nodes import claims, evidence_age, indexing, lifecycle
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.registry import Handlers, Timers
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

# A condition without a finding, too.
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

ORDERS_UNANSWERED = Condition(
    name="OrdersUnanswered",
    component="agent/orders",
    meaning="the node's agent is connected and answers pings, and has not done what it was "
    "ordered, or its ranks do not get as far as others; it counts as gone for that job",
    source="orders that were given twice, for 60 s (answer_timeout_s); checks that were, for 180 s "
    "(check_timeout_s); the times of jobs, restore_timeout_s and holdings_timeout_s",
    clears_when="its agent carries out an order, or connects anew",
    mode=Mode.ADVISE,
)

# --- events: what is said of a node --------------------------------------------------------------


def finding_raised(turn: Turn, event: Reported[FindingRaised]) -> None:
    """Take a finding of an agent."""
    node = turn.state.nodes[event.origin.node]
    seen_ns = event.seen_ns or event.at_ns or turn.now_ns
    _raise_agents(turn, node, event.report.finding, event.at_ns, seen_ns)


def finding_cleared(turn: Turn, event: Reported[FindingCleared]) -> None:
    """Close a finding of an agent on the evidence of its node."""
    node = turn.state.nodes[event.origin.node]
    seen_ns = event.seen_ns or event.at_ns or turn.now_ns
    _clear_agents(turn, node, event.report, seen_ns)


def verdict_changed(turn: Turn, event: VerdictChanged) -> None:
    """Take what a judge of the controller finds about a node or a domain, or finds over."""
    node = turn.state.nodes.get(event.node)
    if not event.node:
        _record_domain_verdict(turn, event)
    if node is None:
        return
    if event.finding is not None:
        _raise_finding(turn, node, OpenFinding(event.finding, turn.now_ns))
    else:
        _clear_finding(turn, node, _finding_name(FindingOwner.CONTROLLER, event.key), event)


def _record_domain_verdict(turn: Turn, event: VerdictChanged) -> None:
    """Keep what is found about a failure domain: it is the controller's, and of no node."""
    name, key = f"{event.key.component} {event.key.condition}", event.key
    if event.finding is not None:
        turn.state.findings[name] = OpenFinding(event.finding, turn.now_ns)
        sentence = f"{key.component}: {event.finding.message}: {event.evidence}"
        settings, found = turn.state.settings, event.finding
        about = about_finding(found, settings.mode_of(found.condition, found.mode))
        turn.announce(CONTROLLER, key.condition, sentence, about)
    elif (known := turn.state.findings.pop(name, None)) is not None:
        sentence = f"{key.condition} of {key.component} is over: {event.evidence}"
        turn.announce(
            CONTROLLER,
            f"{key.condition}Cleared",
            sentence,
            about_cleared(known.finding, event.evidence),
        )


def finding_settled(turn: Turn, event: FindingSettled) -> None:
    """Take what has been true of an agent's finding for a while that came and went."""
    node = turn.state.nodes.get(event.node)
    if node is None:
        return
    seen_ns = event.seen_ns or event.at_ns or turn.now_ns
    if event.finding is not None:
        _raise_agents(turn, node, event.finding, event.at_ns, seen_ns)
    else:
        _clear_agents(turn, node, event, seen_ns)


def _raise_agents(
    turn: Turn, node: NodeRecord, finding: Finding, since_ns: int, seen_ns: int
) -> None:
    """Take a finding of an agent that saw it then: late is what starts no action any more."""
    late = evidence_age.is_too_old(turn.state.settings, finding.condition, seen_ns, turn.now_ns)
    if late and _has_told_since(node, finding.key, seen_ns):
        return
    held = OpenFinding(finding, since_ns, FindingOwner.AGENT, seen_ns=seen_ns, late=late)
    _raise_finding(turn, node, held)


def _clear_agents(
    turn: Turn, node: NodeRecord, cleared: FindingCleared | FindingSettled, seen_ns: int
) -> None:
    """Take that a finding of an agent was over then."""
    condition = cleared.key.condition
    late = evidence_age.is_too_old(turn.state.settings, condition, seen_ns, turn.now_ns)
    if not late or not _has_told_since(node, cleared.key, seen_ns):
        _clear_finding(turn, node, _finding_name(FindingOwner.AGENT, cleared.key), cleared)


def _has_told_since(node: NodeRecord, key: FindingKey, seen_ns: int) -> bool:
    """Return whether its agent has said later than that, as when it connected, that it is open."""
    known = node.health.findings.get(_finding_name(FindingOwner.AGENT, key))
    return known is not None and not known.late and known.seen_ns > seen_ns


def raise_finding(turn: Turn, node: NodeRecord, finding: Finding) -> None:
    """Open a finding about a node that follows from the core's own state, or tell of its change."""
    _raise_finding(turn, node, OpenFinding(finding, turn.now_ns, FindingOwner.CORE))


def clear_finding(turn: Turn, node: NodeRecord, key: FindingKey, evidence: str) -> None:
    """Close such a finding; nothing happens where it is not open."""
    _clear_finding(turn, node, _finding_name(FindingOwner.CORE, key), Cleared(key, evidence))


def has_finding(node: NodeRecord, key: FindingKey) -> bool:
    """Return whether such a finding is open."""
    return _finding_name(FindingOwner.CORE, key) in node.health.findings


def record_unanswered(turn: Turn, node: NodeRecord, message: str) -> None:
    """Open the finding that an agent carries out no orders, in a sentence about what is missing."""
    finding = Finding(
        component=ORDERS_UNANSWERED.component,
        condition=ORDERS_UNANSWERED.name,
        mode=ORDERS_UNANSWERED.mode,
        severity=Severity.DEGRADED,
        message=message,
        suggested_action=SuggestedAction.WATCH,
        rule="see 'journalctl -u everstep-agent' on the node, and restart its agent: 'systemctl "
        "restart everstep-agent' costs no job a step; cleared when the agent carries out an order",
    )
    if not has_finding(node, finding.key):
        raise_finding(turn, node, finding)


def record_answer(turn: Turn, node: NodeRecord, evidence: str) -> None:
    """Close it: an agent has done something that it was ordered."""
    key = FindingKey(ORDERS_UNANSWERED.component, ORDERS_UNANSWERED.name)
    clear_finding(turn, node, key, evidence)


def record_check(turn: Turn, event: Reported[CheckFinished]) -> None:
    """Take the result of the newest check of a node."""
    node = turn.state.nodes[event.origin.node]
    record_answer(turn, node, "its agent has answered a check")
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


def replace_agent_findings(
    turn: Turn, node: NodeRecord, findings: Sequence[Finding], since_ns: Sequence[int]
) -> None:
    """Have exactly these findings of its agent open on a node; those of the controller stay.

    ``since_ns``: since when each is open, as far as that is told. They are seen now.
    """
    now_ns, before = turn.now_ns, node.health.findings
    kept = {k: held for k, held in before.items() if held.owner is not FindingOwner.AGENT}
    for finding, began_ns in zip(findings, chain(since_ns, repeat(now_ns)), strict=False):
        name = _finding_name(FindingOwner.AGENT, finding.key)
        known = before.get(name)
        if known is None:
            known = OpenFinding(finding, min(began_ns, now_ns), FindingOwner.AGENT)
            _announce_raised(turn, node, known)
        elif is_news(known.finding, finding):
            first = _first_evidence(known, finding)
            known = OpenFinding(finding, known.since_ns, FindingOwner.AGENT, first_evidence=first)
            _announce_raised(turn, node, known)
        if name in node.health.flapping:
            node.health.flapping[name].drop_held()
        known.seen_ns, known.late = now_ns, False
        kept[name] = known
    node.health.findings = kept
    for held in [held for name, held in before.items() if name not in kept]:
        _announce_cleared(turn, node, held.finding, "its agent does not find it any more")


def _finding_name(owner: FindingOwner, key: FindingKey) -> str:
    return f"{owner.value} {key.component} {key.condition}"


def _raise_finding(turn: Turn, node: NodeRecord, found: OpenFinding) -> None:
    name = _finding_name(found.owner, found.finding.key)
    known = node.health.findings.get(name)
    if known is None:
        node.health.flapping.setdefault(name, Flapping()).note_raised(turn.now_ns)
    elif not _is_change_told(turn, node, known, found):
        return
    else:
        found.since_ns = known.since_ns
        found.first_evidence = _first_evidence(known, found.finding)
    _open_finding(turn, node, name, found)


def _first_evidence(known: OpenFinding, found: Finding) -> str:
    """Return the evidence with which a finding began that is raised again."""
    if known.first_evidence or known.finding.evidence == found.evidence:
        return known.first_evidence
    return known.finding.evidence


def _open_finding(turn: Turn, node: NodeRecord, name: str, found: OpenFinding) -> None:
    node.health.findings[name] = found
    _announce_raised(turn, node, found)
    turn.mark_node(node.name)


def _announce_raised(turn: Turn, node: NodeRecord, held: OpenFinding) -> None:
    finding, age = held.finding, ""
    if held.late:
        age = evidence_age.objection(node, held, turn.now_ns)
    sentence = f"{finding.severity.value} on {node.name}: {finding_sentence(finding)}"
    mode = turn.state.mode_of(node, finding.condition, finding.mode)
    about = about_finding(finding, mode)
    turn.announce(node.name, finding.condition, f"{sentence}; {age}" if age else sentence, about)


def _announce_cleared(turn: Turn, node: NodeRecord, finding: Finding, evidence: str) -> None:
    sentence = f"{finding.condition} is over on {node.name}: {evidence}"
    turn.announce(
        node.name, f"{finding.condition}Cleared", sentence, about_cleared(finding, evidence)
    )


def about_finding(finding: Finding, mode: Mode) -> About:
    """Return what programs are told of a finding that is open; ``mode`` holds where it is."""
    return About(
        topic=Topic.FINDING_RAISED,
        component=finding.component,
        condition=finding.condition,
        severity=finding.severity.value,
        mode=mode.value,
        evidence=finding.evidence,
        suggested_action=finding.suggested_action.value,
        injected=finding.injected,
    )


def about_cleared(finding: Finding, evidence: str) -> About:
    """Return what programs are told of a finding that is over."""
    return About(
        topic=Topic.FINDING_CLEARED,
        component=finding.component,
        condition=finding.condition,
        severity=finding.severity.value,
        evidence=evidence,
        injected=finding.injected,
    )


def _clear_finding(
    turn: Turn,
    node: NodeRecord,
    name: str,
    cleared: FindingCleared | FindingSettled | VerdictChanged | Cleared,
) -> None:
    if name not in node.health.findings or _keep_open(turn, node, name, cleared.key):
        return
    finding = node.health.findings.pop(name).finding
    _announce_cleared(turn, node, finding, cleared.evidence)
    node.news.cleared = f"{cleared.key.condition} of {cleared.key.component} is over: "
    turn.mark_node(node.name)


def _is_change_told(turn: Turn, node: NodeRecord, known: OpenFinding, found: OpenFinding) -> bool:
    """Return whether an open finding that is raised again has changed, and people are told now."""
    name = _finding_name(found.owner, found.finding.key)
    flapping = node.health.flapping.setdefault(name, Flapping())
    came_back = bool(flapping.well_since_ns)
    if came_back:
        flapping.note_raised(turn.now_ns)
    if not is_news(known.finding, found.finding):
        flapping.drop_held()
        known.first_evidence = _first_evidence(known, found.finding)
        known.finding = found.finding
        known.seen_ns = max(known.seen_ns, found.seen_ns)
        known.late = known.late and found.late
        turn.mark_node(node.name)
        # What an operator has accepted, and is found again, is not accepted any more.
        return bool(known.accepted_by) and not came_back
    if not flapping.holds_back(known.finding, found.finding, turn.now_ns):
        return True
    if not turn.has_timer(TimerKind.FLAPPING, node.name):
        after_ns = flapping.changes.due_at_ns - turn.now_ns
        turn.set_timer(f"{TimerKind.FLAPPING}/{node.name}", after_ns)
    return False


def _keep_open(turn: Turn, node: NodeRecord, name: str, key: FindingKey) -> bool:
    """Return whether a finding stays open that is over for the moment; say so once a minute."""
    flapping = node.health.flapping.get(name)
    if flapping is None:
        return False
    if not flapping.keeps_open(turn.now_ns):
        if not (flapping.raised_ns and flapping.is_recent(turn.now_ns)):
            del node.health.flapping[name]
        return False
    if not turn.has_timer(TimerKind.FLAPPING, node.name):
        turn.set_timer(f"{TimerKind.FLAPPING}/{node.name}", flapping.over_at_ns - turn.now_ns)
        message = f"{key.condition} of {key.component} on {node.name} comes and goes"
        until = "it stays open until it has been well for a minute"
        turn.announce(node.name, "FindingFlaps", f"{message}: {until}")
    return True


def flapping_due(turn: Turn, node_name: str) -> None:
    """What was kept open, or held back, may have been so for long enough."""
    node = turn.state.nodes.get(node_name)
    if node is None:
        return
    for name, flapping in list(node.health.flapping.items()):
        if name not in node.health.findings:
            del node.health.flapping[name]
        elif flapping.well_since_ns and flapping.over_at_ns <= turn.now_ns:
            key = node.health.findings[name].finding.key
            well = "it came and went, and has been well for a minute"
            _clear_finding(turn, node, name, Cleared(key, well))
        elif (due := flapping.take_due(turn.now_ns)) is not None:
            known = node.health.findings[name]
            first = _first_evidence(known, due)
            changed = replace(known, finding=due, accepted_by="", first_evidence=first)
            _open_finding(turn, node, name, changed)
    flapping_now = node.health.flapping.values()
    pending = [one.over_at_ns for one in flapping_now if one.well_since_ns]
    pending += [one.changes.due_at_ns for one in flapping_now if one.held is not None]
    if pending:
        after_ns = max(min(pending) - turn.now_ns, 1)
        turn.set_timer(f"{TimerKind.FLAPPING}/{node.name}", after_ns)


# --- reconciliation: what that means for its health ----------------------------------------------


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Judge a node by the news of it, and then by all that is known of it."""
    news, node.news = node.news, NodeNews()
    if news.connected:
        lifecycle.move_node(turn, node, NodeEvent.CONNECTED, news.connected)
    if node.state is NodeState.MAINTENANCE:
        _advise(turn, node, None)
        return
    if news.check_due and node.state is NodeState.VALIDATING:
        _ask_again(turn, node)
    if news.check is not None and node.state is NodeState.VALIDATING:
        _judge_check(turn, node, news.check)
    if news.repaired:
        lifecycle.move_node(turn, node, NodeEvent.REPAIRED, news.repaired)
    if node.state is NodeState.PROBATION and not turn.has_timer(TimerKind.PROBATION, node.name):
        lifecycle.move_node(turn, node, NodeEvent.PROBATION_OVER, "its probation is over")
    advised = _judge_findings(turn, node, news.cleared) or _judge_blame(turn, node)
    _advise(turn, node, advised)


def finding_sentence(finding: Finding) -> str:
    """Return the sentence of a finding; one that was made on purpose says so everywhere."""
    return f"{finding.message} [injected]" if finding.injected else finding.message


def _judge_check(turn: Reconciliation, node: NodeRecord, report: CheckFinished) -> None:
    failed = "" if report.passed else report.message or "its agent does not say why"
    found = None if failed else _fatal_finding(turn, node)
    problem = finding_sentence(found) if found is not None else failed
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
        record_unanswered(turn, node, f"{message}, {node.health.checks_unanswered} times")


def _fatal_finding(turn: Turn, node: NodeRecord) -> Finding | None:
    """Return what a check does not show: an open finding that automation would act on."""
    for held in node.health.findings.values():
        finding = held.finding
        fatal = finding.severity is Severity.FATAL and held.counts_against_node
        if not fatal or _is_old(turn, node, held):
            continue
        if not claims.refusal(turn, node, finding.condition, finding.mode):
            return finding
    return None


# A failed check is repeated after twice as long each time, so often; and so many checks that are
# not answered are a finding.
_DOUBLED_MAX = 16
_UNANSWERED_MAX = 2


@dataclass(frozen=True, slots=True)
class _Advice:
    """Advice to people to do what automation may not: why, what, and what forbids it."""

    reason: str
    what: str
    refusal: claims.Refusal


def _judge_findings(turn: Reconciliation, node: NodeRecord, cleared: str) -> _Advice | None:
    """Judge a node by its open findings, as far as the mode and the age of each one allow."""
    found = _findings_that_count(turn.state, node)
    counting = [held for held in found if not _is_old(turn, node, held)]
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


def _is_old(turn: Turn, node: NodeRecord, held: OpenFinding) -> bool:
    return bool(evidence_age.objection(node, held, turn.now_ns))


def is_well_now(node: NodeRecord, held: OpenFinding) -> bool:
    """Return whether a finding is over for the moment, and kept open because it comes and goes."""
    flapping = node.health.flapping.get(_finding_name(held.owner, held.finding.key))
    return flapping is not None and bool(flapping.well_since_ns)


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
    reports.FindingRaised: finding_raised,
    reports.FindingCleared: finding_cleared,
    events.FindingSettled: finding_settled,
    events.VerdictChanged: verdict_changed,
    events.OperatorIsolated: operator_isolated,
    events.OperatorReleased: operator_released,
    events.OperatorDrained: operator_drained,
}
TIMERS: Timers = {
    TimerKind.CHECK: check_due,
    TimerKind.FLAPPING: flapping_due,
    TimerKind.PROBATION: probation_over,
}
