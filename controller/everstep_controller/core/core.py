"""The one door of the core: events in, actions out."""

from collections.abc import Callable, Mapping
from typing import Any

from everstep_common import reports
from everstep_controller.core import controller, events
from everstep_controller.core.actions import Action, Announce, SetTimer
from everstep_controller.core.fleet import rejected_records
from everstep_controller.core.jobs import (
    admission,
    ending,
    identity,
    membership,
    orders,
    outstanding,
    progress,
    stalling,
)
from everstep_controller.core.model.facts import Origin
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.nodes import (
    checks,
    connection,
    findings,
    health,
    injections,
    liveness,
    operators,
)
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.planned import maintenance, restarts
from everstep_controller.core.recovery import adoption, planning, rollback, spares, start
from everstep_controller.core.turn import Turn


class Core:
    """Folds events into the state and says what is to be done. Deterministic; owns its state."""

    def __init__(self, state: State | None = None) -> None:
        self.state = state if state is not None else State()

    def handle(self, event: events.Event, now_ns: int) -> list[Action]:
        """Take one event that happened to be learned at ``now_ns``; return what it calls for.

        A record that was taken before, and anything but the controller's own affairs while it is
        halted, changes nothing.
        """
        turn = Turn(self.state, now_ns)
        self.state.event_count += 1
        if self._is_news(event) and (not self.state.halted or type(event) in _WHILE_HALTED):
            _HANDLERS[events.kind_of(event)](turn, event)
            membership.nodes_unusable(turn)
            admission.next_begins(turn)
            restarts.plan_restarts(turn, event)
            spares.look_for_spares(turn, event)
            orders.hold_where_eligibility_changed(turn)
        if self.state.halted:
            return [action for action in turn.actions if isinstance(action, Announce | SetTimer)]
        return list(dict.fromkeys(turn.actions))

    def due(self, now_ns: int) -> list[Action]:
        """Return every action that the state still calls for, as after a restart."""
        del now_ns  # Timers that are overdue come due at once in the shell.
        return [] if self.state.halted else list(outstanding.outstanding(self.state))

    def _is_news(self, event: events.Event) -> bool:
        """Return whether a record is new, and remember that it was taken."""
        if isinstance(event, events.JobProgressed):
            for row_origin in event.origins:
                self._take(row_origin)
            return True
        origin: Origin | None = getattr(event, "origin", None)
        return origin is None or self._take(origin)

    def _take(self, origin: Origin) -> bool:
        if origin.sequence <= self.state.outboxes.get(origin.outbox, 0):
            return False
        self.state.outboxes[origin.outbox] = origin.sequence
        return True


def _controller_started(turn: Turn, event: events.ControllerStarted) -> None:
    state = turn.state
    state.term += 1
    state.findings.pop("event rejected", None)
    stalling.controller_started(turn)
    for node in state.nodes.values():
        # Nobody was listening, so nothing that the streams did in the meantime is evidence.
        if node.connected:
            node.connected = False
            node.silent_since_ns = node.silent_since_ns or turn.now_ns
        node.silent_to, node.confirmation = [], None
        turn.drop_timer(f"confirm/{node.name}")
        if not node.gone:
            turn.set_timer(f"stream/{node.name}", state.settings.restart_grace_ns)
    turn.announce(
        CONTROLLER, "ControllerStarted", f"version {event.version} begins term {state.term}"
    )


def _settings_applied(turn: Turn, event: events.SettingsApplied) -> None:
    turn.state.settings = event.settings
    for node in list(turn.state.nodes.values()):
        if node.findings:
            health.judge_node(turn, node)


def _node_connected(turn: Turn, event: events.NodeConnected) -> None:
    state = turn.state
    state.highest_term_seen = max(state.highest_term_seen, event.highest_term)
    newer = _what_is_newer(state, event)
    if newer and not state.halted:
        state.halted = (
            f"{event.node} has seen {newer}: this journal is old, or another controller runs; stop "
            "the other one, or run 'everstep-controller recover'"
        )
        turn.announce(CONTROLLER, "ControllerHalted", state.halted)
    if state.halted:
        for seen in event.jobs:
            known = state.generations_seen.get(seen.job, 0)
            state.generations_seen[seen.job] = max(known, seen.generation)
        return
    connection.take_hello(turn, event)
    state.nodes[event.node].welcomed_term = state.term


def _what_is_newer(state: State, event: events.NodeConnected) -> str:
    """Return what an agent has seen that this journal does not know; empty when it knows all."""
    node = state.nodes.get(event.node)
    mine = node is not None and node.welcomed_term == state.term
    if event.highest_term > state.term or (event.highest_term == state.term and not mine):
        return f"term {event.highest_term}, which is not of this journal"
    for seen in event.jobs:
        job = state.jobs.get(seen.job)
        # What a recovery has learned of a job that the journal lost is known from then on.
        known = state.generations_seen.get(seen.job, 0)
        own = job is not None and adoption.is_own(job, event.node, seen)
        if seen.generation > max(known, job.generation.number if job else 0) and not own:
            return f"generation {seen.generation} of {seen.job}, which this journal does not know"
    return ""


def _timer_due(turn: Turn, event: events.TimerDue) -> None:
    at_ns = turn.state.timers.get(event.timer)
    if at_ns is None or at_ns > turn.now_ns:
        return
    kind, _, name = event.timer.partition("/")
    if kind in ("forming", "retry"):
        job = turn.state.jobs.get(name)
        if job is not None:
            planning.reconsider(turn, job)
        if turn.state.timers.get(event.timer) == at_ns:
            turn.drop_timer(event.timer)
        return
    turn.drop_timer(event.timer)
    if kind in _TIMERS:
        _TIMERS[kind](turn, name)
    elif name in turn.state.nodes:
        _node_timer(turn, kind, name)


def _node_timer(turn: Turn, kind: str, name: str) -> None:
    node = turn.state.nodes[name]
    if kind == "stream":
        liveness.stream_silent(turn, node)
    elif kind == "confirm":
        liveness.decide_silence(turn, node)
    elif kind == "check":
        checks.check_again(turn, node)
    elif kind == "spare":
        spares.spare_check_due(turn, node)
    elif kind == "probation":
        health.move_node(turn, node, NodeEvent.PROBATION_OVER, "its probation is over")


_TIMERS: Mapping[str, Callable[[Turn, str], None]] = {
    "recovery": controller.recovery_over,
    "forget": ending.retention_over,
    "breakpoint": ending.breakpoint_overdue,
    "abandoned": ending.end_abandoned,
    "injection": injections.forget_injection,
    "maintenance": maintenance.window_due,
    "planned": restarts.boundary_overdue,
    "next": identity.end_overdue,
    "stalled": stalling.stall_due,
    "rejected": rejected_records.quiet,
    "growth": lambda *_: None,  # they are looked at after every event
    "still": lambda *_: None,
}
# The handlers take exactly the event that they are listed under.
_HANDLERS: dict[type, Callable[[Turn, Any], None]] = {
    events.ControllerStarted: _controller_started,
    events.SettingsApplied: _settings_applied,
    events.TimerDue: _timer_due,
    events.EventRejected: controller.event_rejected,
    events.RecordRejected: rejected_records.record_rejected,
    events.RecoveryBegun: controller.recovery_begun,
    events.NodeConnected: _node_connected,
    events.NodeDisconnected: liveness.node_disconnected,
    events.PeerReported: liveness.peer_reported,
    events.PeerJudged: liveness.peer_judged,
    reports.FindingRaised: findings.finding_raised,
    reports.FindingCleared: findings.finding_cleared,
    reports.CheckFinished: checks.record_check,
    events.VerdictChanged: findings.verdict_changed,
    events.OperatorIsolated: operators.operator_isolated,
    events.OperatorReleased: operators.operator_released,
    events.OperatorDrained: operators.operator_drained,
    events.MaintenanceOrdered: maintenance.maintenance_ordered,
    events.MaintenanceCancelled: maintenance.maintenance_cancelled,
    events.RestartOrdered: restarts.restart_ordered,
    events.RestartCancelled: restarts.restart_cancelled,
    events.AutomationPaused: controller.automation_paused,
    events.AutomationResumed: controller.automation_resumed,
    events.InjectionOrdered: injections.injection_ordered,
    events.InjectionCleared: injections.injection_cleared,
    reports.InjectionChanged: injections.injection_changed,
    events.OperatorForgotJob: ending.job_forgotten,
    reports.LauncherJoined: admission.launcher_joined,
    reports.LauncherLeft: membership.launcher_left,
    reports.PhaseReached: progress.phase_reached,
    reports.RankExited: membership.rank_exited,
    reports.RollbackAsked: rollback.rollback_asked,
    reports.RestartedHere: adoption.restarted_here,
    reports.GenerationStopped: membership.generation_stopped,
    reports.GenerationFinished: progress.generation_finished,
    events.JobProgressed: progress.progressed,
    events.StepRecoverable: restarts.step_recoverable,
    events.KeeperChosen: progress.keeper_chosen,
    events.CadenceChosen: progress.cadence_chosen,
    events.LayoutLearned: progress.layout_learned,
    events.RecoveryStepChosen: start.step_chosen,
    events.BreakpointReached: ending.breakpoint_reached,
}
_WHILE_HALTED = frozenset(
    {
        events.ControllerStarted,
        events.SettingsApplied,
        events.TimerDue,
        events.NodeConnected,
        events.RecoveryBegun,
        events.EventRejected,
    }
)
