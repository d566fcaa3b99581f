"""Findings of the controller about itself: a full journal, failed judges, paused automation."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.fleet import rejected_records
from everstep_controller.core.jobs import unknown_time, unsaved
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.nodes import (
    addresses,
    agent_identity,
    budgets,
    driver_pause,
    isolation,
    isolation_view,
    machines,
    outage,
)
from everstep_controller.core.planned import forecast
from everstep_controller.journal.group_commit import JournalFull
from everstep_controller.journal.synchrony import LostSynchrony
from everstep_controller.runtime.judge_failures import JudgeFailure, JudgeName
from everstep_controller.webhooks.webhooks import WEBHOOK_FAILED, WebhookFailure, webhook_finding


@dataclass(frozen=True, slots=True)
class StateFindings:
    """Findings that follow from the core's state alone, and the conditions that they are of."""

    conditions: tuple[Condition, ...]
    findings: Callable[[State], Iterator[OpenFinding]]


# All of them; a new one is a condition and a function beside what it is about, and a line here.
FROM_STATE = (
    StateFindings((forecast.MAINTENANCE_INTERRUPTS,), forecast.interruption_findings),
    StateFindings(
        (rejected_records.RECORD_REJECTED, rejected_records.ORDER_REJECTED),
        rejected_records.findings,
    ),
    StateFindings((isolation.DRIVER_FAILED,), isolation_view.driver_findings),
    StateFindings((driver_pause.DRIVERS_PAUSED,), driver_pause.findings),
    StateFindings(
        (agent_identity.NODE_NAME_TAKEN, agent_identity.AGENT_QUARANTINED), agent_identity.findings
    ),
    StateFindings((budgets.ISOLATION_HELD_BACK,), budgets.findings),
    StateFindings((outage.AGENTS_CUT_OFF,), outage.findings),
    StateFindings((machines.MACHINE_ID_SHARED,), machines.findings),
    StateFindings((addresses.ADDRESS_UNREACHABLE,), addresses.findings),
    StateFindings((unsaved.STEPS_UNSAVED,), unsaved.findings),
    StateFindings((unknown_time.TIME_UNKNOWN,), unknown_time.findings),
)

# Subject and reason of the line of the event list with which something began, to its time.
Since = Callable[[str, str], int]

_JOURNAL_FULL = Condition(
    name="JournalFull",
    component="controller/journal",
    meaning="the journal cannot be written; new work is refused, nothing acknowledged is lost",
    source="the error of the file system",
    clears_when="a write succeeds; it is tried every second",
    mode=Mode.ADVISE,
)
JOURNAL_UNREPLICATED = Condition(
    name="JournalUnreplicated",
    component="controller/journal/replication",
    meaning="the database acknowledges commits that are on no standby, as it did before; a "
    "failover loses what no standby has received",
    source="synchronous_standby_names and synchronous_commit of the server that takes writes, "
    "asked every 5 s, for 10 s",
    clears_when="commits are synchronous again",
    mode=Mode.ADVISE,
)
_HALTED = Condition(
    name="ControllerHalted",
    component="controller/core",
    meaning="an agent has seen a newer term or generation than the journal: the journal is old, or "
    "another controller runs; this one acts on nothing",
    source="the highest term and generation that agents report when they connect",
    clears_when="'everstep-controller recover' has rebuilt what the journal lacks",
    mode=Mode.ADVISE,
)
_PAUSED = Condition(
    name="AutomationPaused",
    component="controller/automation",
    meaning="automation takes no decision for a node, a job or the fleet",
    source="an operator's order, or an event that made the core fail (EventRejected)",
    clears_when="an operator says so: 'everstep resume'",
    mode=Mode.ADVISE,
)
_JUDGE_FAILED = Condition(
    name="JudgeFailed",
    component="controller/judge/NAME",
    meaning="a judge of the controller fails; what it found stays as it is, the other judges go"
    " on, and a job that it should judge falls back to its timeout (core.stall_restart_timeout_s)",
    source="any error in it: it raises; or its process exits, is killed, is refused a system call,"
    " takes too long or answers what cannot be read. These processes are tried every hour, too",
    clears_when="it judges without an error, or the job has ended at which it failed",
    mode=Mode.ADVISE,
)
_RECOVERY_BEGUN = "RecoveryBegun"
# Reasons of lines of the event list that say since when something is so.
SINCE_REASONS = frozenset({_JOURNAL_FULL.name, _HALTED.name, _PAUSED.name, _RECOVERY_BEGUN})
# Of jobs at which a judge fails, so many fit a line.
_JOBS_NAMED = 3
CONDITIONS = (
    _JOURNAL_FULL,
    JOURNAL_UNREPLICATED,
    _HALTED,
    _PAUSED,
    _JUDGE_FAILED,
    WEBHOOK_FAILED,
    *(condition for one in FROM_STATE for condition in one.conditions),
)


@dataclass(frozen=True, slots=True)
class ShellTrouble:
    """Faults of the shell, which the core does not know."""

    journal_full: JournalFull | None = None
    judge_failures: tuple[JudgeFailure, ...] = ()
    webhook_failures: tuple[WebhookFailure, ...] = ()
    lost_synchrony: LostSynchrony | None = None


def open_controller_findings(
    state: State, trouble: ShellTrouble, since: Since
) -> Iterator[OpenFinding]:
    """Yield the controller's own open findings; those of the core are in its state."""
    yield from state.findings.values()
    for one in FROM_STATE:
        yield from one.findings(state)
    if trouble.journal_full is not None:
        full = _journal_full(trouble.journal_full)
        yield OpenFinding(full, since(CONTROLLER, _JOURNAL_FULL.name))
    if trouble.lost_synchrony is not None:
        lost = trouble.lost_synchrony
        yield OpenFinding(_unreplicated(lost), lost.since_ns)
    for failure in trouble.judge_failures:
        yield OpenFinding(_judge_failed(failure), failure.since_ns)
    for webhook in trouble.webhook_failures:
        yield OpenFinding(webhook_finding(webhook), webhook.since_ns)
    if state.halted:
        began = _RECOVERY_BEGUN if state.recovering else _HALTED.name
        yield OpenFinding(_halted(state), since(CONTROLLER, began))
    for subject, reason in sorted(state.paused.items()):
        yield OpenFinding(_paused(subject, reason), since(subject, _PAUSED.name))


def _journal_full(full: JournalFull) -> Finding:
    return Finding(
        component=_JOURNAL_FULL.component,
        condition=_JOURNAL_FULL.name,
        mode=_JOURNAL_FULL.mode,
        severity=Severity.FATAL,
        message=f"{full}; new work is refused, nothing acknowledged is lost",
        suggested_action=SuggestedAction.REPAIR_HARDWARE,
        rule="cleared by the first write that succeeds; it is tried every second",
    )


def _unreplicated(lost: LostSynchrony) -> Finding:
    return Finding(
        component=JOURNAL_UNREPLICATED.component,
        condition=JOURNAL_UNREPLICATED.name,
        mode=JOURNAL_UNREPLICATED.mode,
        severity=Severity.DEGRADED,
        message=lost.sentence,
        evidence=lost.standbys,
        suggested_action=SuggestedAction.WATCH,
        rule="cleared when commits are synchronous again: bring a standby back ('patronictl list', "
        "or 'select * from pg_stat_replication'). Where one server is meant to be enough: "
        'journal_synchrony = "ignored" in controller.toml',
    )


def _judge_failed(failure: JudgeFailure) -> Finding:
    at = f" at {', '.join(failure.jobs[:_JOBS_NAMED])}" if failure.jobs else ""
    if more := len(failure.jobs[_JOBS_NAMED:]):
        at += f" and {more} more"
    restart = ""
    if failure.judge == JudgeName.HANG.value:
        job = failure.jobs[0] if failure.jobs else "JOB"
        restart = f"; 'everstep job {job} restart' does not wait for it"
    return Finding(
        component=f"controller/judge/{failure.judge}",
        condition=_JUDGE_FAILED.name,
        mode=_JUDGE_FAILED.mode,
        severity=Severity.DEGRADED,
        message=f"{failure.judge} fails{at}: {failure.unknown}",
        evidence=failure.why,
        suggested_action=SuggestedAction.WATCH,
        rule="cleared when it judges without an error; 'journalctl --unit=everstep-controller' has "
        "more, and where a call was refused 'systemctl cat everstep-controller' the unit, which "
        f"the shipped one must equal{restart}",
    )


def _halted(state: State) -> Finding:
    return Finding(
        component=_HALTED.component,
        condition=_HALTED.name,
        mode=_HALTED.mode,
        severity=Severity.DEGRADED if state.recovering else Severity.FATAL,
        message=f"the controller acts on nothing: {state.halted}",
        suggested_action=SuggestedAction.WATCH,
        rule="cleared by the end of a recovery; jobs and agents go on without it",
    )


def _paused(subject: str, reason: str) -> Finding:
    return Finding(
        component=_PAUSED.component,
        condition=_PAUSED.name,
        mode=_PAUSED.mode,
        severity=Severity.INFO,
        message=f"automation for {subject} is paused: {reason}",
        suggested_action=SuggestedAction.WATCH,
        rule=f"cleared by 'everstep resume{'' if subject == 'fleet' else ' ' + subject}'",
    )
