"""Handlers of the controller's own events: starts, settings, pauses, rejections, recovery."""

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core import events
from everstep_controller.core.events import RecoveryBegun
from everstep_controller.core.jobs import (
    lost_ends,
    lost_jobs,
    membership,
    progress,
    remembered_ends,
    unsaved,
)
from everstep_controller.core.model.agents import SeenGeneration
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.core.model.state import CONTROLLER, FLEET, current_name
from everstep_controller.core.nodes import agent_identity, evidence, isolation
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import TimerKind, Turn

EVENT_REJECTED = Condition(
    name="EventRejected",
    component="controller/core",
    meaning="an event made the core fail; it is skipped for good, and automation pauses for the "
    "node and the job of the event",
    source="any error in the core",
    clears_when="the controller is restarted, possibly with a fixed version",
    mode=Mode.ADVISE,
)


CONTROLLER_OVERLOADED = Condition(
    name="ControllerOverloaded",
    component="controller/core",
    meaning="the controller's loop stood still more than three times in a row, none a minute after"
    " the one before it; it judges silences all the same",
    source="the lateness of its loop, as the shell measures it",
    clears_when="it has kept up for a minute",
    mode=Mode.ADVISE,
)

# Timers that wait for what agents tell.
_FOR_AGENTS = frozenset(
    {
        TimerKind.ANSWER,
        TimerKind.CHECK,
        TimerKind.FINAL_SAVE,
        TimerKind.ABANDONED,
        TimerKind.UNTOLD,
        TimerKind.WITHDRAW,
    }
)

# A stall is one of a row when the one before it was so shortly ago, and so many are borne.
_CALM_NS = 60_000_000_000
_STALLS_BORNE = 3

# Timers that wait for a time, not for somebody: they are not put off.
_BY_THE_CLOCK = frozenset(
    {
        TimerKind.MAINTENANCE,
        TimerKind.FORGET,
        TimerKind.PROBATION,
        TimerKind.REFUSED,
        TimerKind.REJECTED,
        TimerKind.RENAMED,
        TimerKind.CALM,
        TimerKind.BUDGET,
        TimerKind.FLAPPING,
        TimerKind.BACKOFF,
        # The service manager that ends a job kills it by its own clock.
        TimerKind.ENDING,
    }
)


def event_rejected(turn: Turn, event: events.EventRejected) -> None:
    """Pause automation for what an event concerned that made the core fail."""
    message = f"event {event.sequence} ({event.kind}) made the core fail: {event.error}"
    finding = Finding(
        component=EVENT_REJECTED.component,
        condition=EVENT_REJECTED.name,
        mode=EVENT_REJECTED.mode,
        severity=Severity.DEGRADED,
        message=message,
        evidence=f"{event.node or '-'} {event.job or '-'}",
        suggested_action=SuggestedAction.WATCH,
        rule="an event that raises is kept out and pauses automation for what it concerns",
    )
    turn.state.findings["event rejected"] = OpenFinding(finding, turn.now_ns)
    job = turn.state.job(event.job)
    for subject in filter(None, (event.node, job.name if job else event.job)):
        _mark_subject(turn, subject)
        turn.state.paused[subject] = message
        turn.announce(subject, "AutomationPaused", f"automation for {subject} pauses: {message}")
    turn.announce(CONTROLLER, "EventRejected", message)


def automation_paused(turn: Turn, event: events.AutomationPaused) -> None:
    """Take no decision for a node or job until an operator says so."""
    subject = current_name(turn.state, event.subject)
    _mark_subject(turn, subject)
    turn.state.paused[subject] = f"{event.operator}: {event.reason}"
    turn.announce(subject, "AutomationPaused", turn.state.paused[subject])


def automation_resumed(turn: Turn, event: events.AutomationResumed) -> None:
    """Go on deciding, and make up for what was put off."""
    subject = current_name(turn.state, event.subject)
    _mark_subject(turn, subject)
    if turn.state.paused.pop(subject, None) is not None:
        turn.announce(subject, "AutomationResumed", f"resumed by {event.operator}")


def _mark_subject(turn: Turn, subject: str) -> None:
    """Mark whom a pause concerns, or its end."""
    if subject == FLEET:
        turn.mark_fleet()
    elif subject in turn.state.nodes:
        turn.mark_node(subject)
    job = turn.state.job(subject)
    if job is not None:
        turn.mark_job(job.id)


def recovery_begun(turn: Turn, event: RecoveryBegun) -> None:
    """Listen to all agents for a while, and act on nothing meanwhile."""
    turn.mark_fleet()
    turn.state.halted = f"rebuilding from what the agents know, ordered by {event.operator}"
    turn.state.recovering = True
    agent_identity.forget_newer(turn)
    turn.set_timer(TimerKind.RECOVERY, turn.state.settings.recover_listen_ns)
    turn.announce(CONTROLLER, "RecoveryBegun", turn.state.halted)


def recovery_over(turn: Turn, _: str) -> None:
    """Go on from what the agents have told, in a term that is newer than all that they know."""
    turn.mark_fleet()
    state = turn.state
    state.term = max(state.term, state.highest_term_seen) + 1
    lost_ends.believe(state, state.lost_ends)
    state.former_agents.clear()
    agent_identity.choose_cluster(turn)
    state.halted, state.recovering = "", False
    state.returns_until_ns = turn.now_ns + _least_grace_ns(turn)
    for node in state.nodes.values():
        node.jobs.without_snapshot = {}  # what a journal has of before that says nothing of today
    lost_jobs.begin_anew(state)
    for job in state.newest_jobs():
        if not remembered_ends.has_ended(state, job):
            seen = state.generations_seen.get(job.name, SeenGeneration(0))
            membership.adopt_generation(turn, job, seen.number)
    isolation.restart_drivers(turn)
    turn.announce(CONTROLLER, "RecoveryOver", f"rebuilt; term {state.term} begins")
    turn.unsent.everybody = True


def cluster_named(turn: Turn, event: events.ClusterNamed) -> None:
    """Belong to a cluster; a file that knows a newer term than the journal shows that it is old."""
    state = turn.state
    state.cluster_id = event.cluster_id
    state.highest_term_seen = max(state.highest_term_seen, event.term)
    if event.term > state.term and not state.halted:
        evidence = f"the cluster file has seen term {event.term}, the journal {state.term}"
        agent_identity.halt_for(turn, evidence)


def controller_started(turn: Turn, event: events.ControllerStarted) -> None:
    """Begin a term: nobody was listening, so silence in the meantime is no evidence."""
    turn.mark_fleet()
    state = turn.state
    state.term += 1
    state.machine = event.machine
    state.former_agents.clear()
    state.findings.pop("event rejected", None)
    grace_ns, again = _begin_grace(turn)
    state.returns_until_ns = turn.now_ns + _least_grace_ns(turn)
    progress.postpone_stalls(turn, grace_ns)
    unsaved.postpone(turn)
    isolation.restart_drivers(turn)
    evidence.expect_agents(turn, again_ns=grace_ns if again else None)
    _expect_answers(turn, grace_ns)
    if state.recovering:
        _listen_again(turn)
    turn.announce(
        CONTROLLER, "ControllerStarted", f"version {event.version} begins term {state.term}"
    )


def _begin_grace(turn: Turn) -> tuple[int, bool]:
    """Return how long agents are waited for, and whether an earlier start has begun that.

    A controller that ends again and again would wait for ever if each start began it anew.
    """
    state = turn.state
    left_ns = state.grace_until_ns - turn.now_ns
    if left_ns > 0:
        return max(left_ns, _least_grace_ns(turn)), True
    state.grace_until_ns = turn.now_ns + state.settings.startup_grace_ns
    return state.settings.startup_grace_ns, False


def _least_grace_ns(turn: Turn) -> int:
    return min(evidence.RECONNECT_NS, turn.state.settings.startup_grace_ns)


def _listen_again(turn: Turn) -> None:
    """Go on with the time in which all agents are heard before anything is done."""
    known_ns = turn.state.timers.get(TimerKind.RECOVERY)
    listen_ns = turn.state.settings.recover_listen_ns
    left_ns = listen_ns if known_ns is None else known_ns - turn.now_ns
    turn.set_timer(TimerKind.RECOVERY, min(listen_ns, max(left_ns, _least_grace_ns(turn))))


def _expect_answers(turn: Turn, grace_ns: int) -> None:
    """Let no timer of those who wait for agents come due before these have had time to speak."""
    for timer, at_ns in list(turn.state.timers.items()):
        if timer.partition("/")[0] in _FOR_AGENTS and at_ns < turn.now_ns + grace_ns:
            turn.set_timer(timer, grace_ns)


def controller_stalled(turn: Turn, event: events.ControllerStalled) -> None:
    """Judge nobody by a time in which this controller stood still, unless it does so for ever."""
    state = turn.state
    state.stalls_ns = [at_ns for at_ns in state.stalls_ns if turn.now_ns - at_ns < _CALM_NS]
    state.stalls_ns.append(turn.now_ns)
    state.grace_until_ns += event.duration_ns
    state.returns_until_ns += event.duration_ns
    turn.set_timer(TimerKind.CALM, _CALM_NS)
    if len(state.stalls_ns) > _STALLS_BORNE:
        del state.stalls_ns[:-_STALLS_BORNE]
        _tell_overloaded(turn, event.duration_ns)
        return
    for job in state.jobs.values():
        job.ledger.note_absence(turn.now_ns - event.duration_ns, turn.now_ns)
    evidence.void_silences(turn, event.duration_ns)
    for timer in [one for one in state.timers if one.partition("/")[0] not in _BY_THE_CLOCK]:
        turn.set_timer(timer, max(0, state.timers[timer] + event.duration_ns - turn.now_ns))


def controller_calm(turn: Turn, _: str) -> None:
    """The controller has not stood still for a while."""
    turn.state.stalls_ns.clear()
    if turn.state.findings.pop("overloaded", None) is not None:
        turn.announce(CONTROLLER, "ControllerOverloadedCleared", "the controller keeps up again")


def _tell_overloaded(turn: Turn, duration_ns: int) -> None:
    known = turn.state.findings.get("overloaded")
    message = f"its loop stood still again, for {duration_ns / 1e9:.1f} s: it judges all the same"
    finding = Finding(
        component=CONTROLLER_OVERLOADED.component,
        condition=CONTROLLER_OVERLOADED.name,
        mode=CONTROLLER_OVERLOADED.mode,
        severity=Severity.DEGRADED,
        message=message,
        suggested_action=SuggestedAction.WATCH,
        rule="give it a core of its own; cleared by a minute in which it keeps up",
    )
    since_ns = turn.now_ns if known is None else known.since_ns
    turn.state.findings["overloaded"] = OpenFinding(finding, since_ns)
    if known is None:
        turn.announce(CONTROLLER, CONTROLLER_OVERLOADED.name, message)


def settings_applied(turn: Turn, event: events.SettingsApplied) -> None:
    """Take the configuration that holds from now on, and judge by it what is open."""
    turn.mark_fleet()
    turn.state.settings, turn.state.groups = event.settings, event.groups
    isolation.configure_drivers(turn, event.isolation_drivers)


HANDLERS: Handlers = {
    events.ControllerStarted: controller_started,
    events.ClusterNamed: cluster_named,
    events.ControllerStalled: controller_stalled,
    events.SettingsApplied: settings_applied,
    events.EventRejected: event_rejected,
    events.RecoveryBegun: recovery_begun,
    events.AutomationPaused: automation_paused,
    events.AutomationResumed: automation_resumed,
}
TIMERS: Timers = {TimerKind.RECOVERY: recovery_over, TimerKind.CALM: controller_calm}
