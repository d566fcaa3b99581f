"""The controller's own findings: it is halted, paused, cannot write, or rejected records."""

from collections.abc import Callable, Iterator

from everstep_common.judging.findings import Finding, Severity, SuggestedAction
from everstep_controller.core.fleet import rejected_records
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.planned import forecast
from everstep_controller.journal.group_commit import JournalFull

# Subject and reason of the line of the event list with which something began, to its time.
Since = Callable[[str, str], int]


def own_findings(state: State, full: JournalFull | None, since: Since) -> Iterator[OpenFinding]:
    """Yield the controller's own open findings; those of the core are in its state."""
    yield from state.findings.values()
    yield from forecast.interruption_findings(state)
    yield from rejected_records.findings(state)
    if full is not None:
        yield OpenFinding(_journal_full(full), since(CONTROLLER, "JournalFull"))
    if state.halted:
        began = "RecoveryBegun" if state.recovering else "ControllerHalted"
        yield OpenFinding(_halted(state), since(CONTROLLER, began))
    for subject, reason in sorted(state.paused.items()):
        yield OpenFinding(_paused(subject, reason), since(subject, "AutomationPaused"))


def _journal_full(full: JournalFull) -> Finding:
    return Finding(
        component="controller/journal",
        condition="JournalFull",
        severity=Severity.FATAL,
        message=f"{full}; new work is refused, nothing acknowledged is lost",
        suggested_action=SuggestedAction.REPAIR_HARDWARE,
        rule="cleared by the first write that succeeds; it is tried every second",
    )


def _halted(state: State) -> Finding:
    return Finding(
        component="controller/core",
        condition="ControllerHalted",
        severity=Severity.DEGRADED if state.recovering else Severity.FATAL,
        message=f"the controller acts on nothing: {state.halted}",
        suggested_action=SuggestedAction.WATCH,
        rule="cleared by the end of a recovery; jobs and agents go on without it",
    )


def _paused(subject: str, reason: str) -> Finding:
    return Finding(
        component="controller/automation",
        condition="AutomationPaused",
        severity=Severity.INFO,
        message=f"automation for {subject} is paused: {reason}",
        suggested_action=SuggestedAction.WATCH,
        rule=f"cleared by 'everstep resume{'' if subject == 'fleet' else ' ' + subject}'",
    )
