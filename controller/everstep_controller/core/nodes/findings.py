"""Findings of nodes: which are open, since when, by whose word, and those that come and go."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, repeat

from everstep_common import reports
from everstep_common.judging.book import Cleared
from everstep_common.judging.findings import Finding, FindingKey, Mode
from everstep_common.judging.flapping import Flapping, is_news
from everstep_common.reports import FindingCleared, FindingRaised
from everstep_controller.core import events
from everstep_controller.core.actions import About, Topic
from everstep_controller.core.events import FindingSettled, Reported, VerdictChanged
from everstep_controller.core.model.node import FindingOwner, NodeRecord, OpenFinding
from everstep_controller.core.model.state import CONTROLLER
from everstep_controller.core.nodes import evidence_age
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind, Turn

# --- events: what agents and judges say ----------------------------------------------------------


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


# --- what follows from the core's own state ------------------------------------------------------


def raise_finding(turn: Turn, node: NodeRecord, finding: Finding) -> None:
    """Open a finding about a node that follows from the core's own state, or tell of its change."""
    _raise_finding(turn, node, OpenFinding(finding, turn.now_ns, FindingOwner.CORE))


def clear_finding(turn: Turn, node: NodeRecord, key: FindingKey, evidence: str) -> None:
    """Close such a finding; nothing happens where it is not open."""
    _clear_finding(turn, node, _finding_name(FindingOwner.CORE, key), Cleared(key, evidence))


def has_finding(node: NodeRecord, key: FindingKey) -> bool:
    """Return whether such a finding is open."""
    return _finding_name(FindingOwner.CORE, key) in node.health.findings


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


def finding_sentence(finding: Finding) -> str:
    """Return the sentence of a finding; one that was made on purpose says so everywhere."""
    return f"{finding.message} [injected]" if finding.injected else finding.message


def is_well_now(node: NodeRecord, held: OpenFinding) -> bool:
    """Return whether a finding is over for the moment, and kept open because it comes and goes."""
    flapping = node.health.flapping.get(_finding_name(held.owner, held.finding.key))
    return flapping is not None and bool(flapping.well_since_ns)


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


HANDLERS: Handlers = {
    reports.FindingRaised: finding_raised,
    reports.FindingCleared: finding_cleared,
    events.FindingSettled: finding_settled,
    events.VerdictChanged: verdict_changed,
}
TIMERS: Timers = {
    TimerKind.FLAPPING: flapping_due,
}
