"""Automation that pauses for a node or job: by an operator's word, or after an event that fails."""

from everstep_common.judging.findings import Finding, Severity, SuggestedAction
from everstep_controller.core import events, jobs, nodes
from everstep_controller.core.state import CONTROLLER, OpenFinding
from everstep_controller.core.turn import Turn


def event_rejected(turn: Turn, event: events.EventRejected) -> None:
    """Pause automation for what an event concerned that made the core fail."""
    message = f"event {event.sequence} ({event.kind}) made the core fail: {event.error}"
    finding = Finding(
        component="controller/core",
        condition="EventRejected",
        severity=Severity.DEGRADED,
        message=message,
        evidence=f"{event.node or '-'} {event.job or '-'}",
        suggested_action=SuggestedAction.WATCH,
        rule="an event that raises is kept out and pauses automation for what it concerns",
    )
    turn.state.findings["event rejected"] = OpenFinding(finding, turn.now_ns)
    for subject in filter(None, (event.node, event.job)):
        turn.state.paused[subject] = message
        turn.announce(subject, "AutomationPaused", f"automation for {subject} pauses: {message}")
    turn.announce(CONTROLLER, "EventRejected", message)


def paused(turn: Turn, event: events.AutomationPaused) -> None:
    """Take no decision for a node or job until an operator says so."""
    turn.state.paused[event.subject] = f"{event.operator}: {event.reason}"
    turn.announce(event.subject, "AutomationPaused", turn.state.paused[event.subject])


def resumed(turn: Turn, event: events.AutomationResumed) -> None:
    """Go on deciding, and make up for what was put off."""
    if turn.state.paused.pop(event.subject, None) is not None:
        turn.announce(event.subject, "AutomationResumed", f"resumed by {event.operator}")
    nodes.retry_deferred(turn)
    jobs.capacity_changed(turn)
