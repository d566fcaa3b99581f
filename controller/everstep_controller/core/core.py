"""The one door of the core: events in, actions out."""

from collections.abc import Callable, Mapping
from typing import Any

from everstep_controller.core import (
    admission,
    adopting,
    cancelling,
    ending,
    events,
    forgetting,
    hold_orders,
    injections,
    jobs,
    jobs_on,
    late,
    liveness,
    maintenance,
    nodes,
    orders,
    pausing,
    planned,
    planning,
    recovering,
    rejected_records,
    rollback,
    running,
    spare_checks,
    stalling,
    starting,
    successors,
)
from everstep_controller.core.actions import Action, Announce, SetTimer
from everstep_controller.core.facts import Origin
from everstep_controller.core.node_lifecycle import NodeEvent
from everstep_controller.core.state import CONTROLLER, State
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
            _HANDLERS[type(event)](turn, event)
            jobs.nodes_unusable(turn)
            admission.next_begins(turn)
            planned.look(turn, event)
            spare_checks.look(turn, event)
            hold_orders.look(turn)
        if self.state.halted:
            return [action for action in turn.actions if isinstance(action, Announce | SetTimer)]
        return list(dict.fromkeys(turn.actions))

    def due(self, now_ns: int) -> list[Action]:
        """Return every action that the state still calls for, as after a restart."""
        del now_ns  # Timers that are overdue come due at once in the shell.
        return [] if self.state.halted else list(orders.outstanding(self.state))

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
    jobs_on.know_all(state)
    stalling.controller_started(turn)
    late.number_all(state)
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
            nodes.reconsider(turn, node)


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
    nodes.connected(turn, event)
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
        own = job is not None and adopting.is_own(job, event.node, seen)
        if seen.generation > max(known, job.generation if job else 0) and not own:
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
        liveness.decide(turn, node)
    elif kind == "check":
        nodes.check_again(turn, node)
    elif kind == "spare":
        spare_checks.due(turn, node)
    elif kind == "probation":
        nodes.move(turn, node, NodeEvent.PROBATION_OVER, "its probation is over")


_TIMERS: Mapping[str, Callable[[Turn, str], None]] = {
    "recovery": recovering.over,
    "forget": forgetting.retention_over,
    "breakpoint": ending.breakpoint_overdue,
    "abandoned": ending.abandoned,
    "injection": injections.forget,
    "maintenance": maintenance.due,
    "planned": planned.overdue,
    "next": successors.overdue,
    "stalled": stalling.due,
    "rejected": rejected_records.quiet,
    "growth": lambda *_: None,  # they are looked at after every event
    "still": lambda *_: None,
}
# The handlers take exactly the event that they are listed under.
_HANDLERS: dict[type, Callable[[Turn, Any], None]] = {
    events.ControllerStarted: _controller_started,
    events.SettingsApplied: _settings_applied,
    events.TimerDue: _timer_due,
    events.EventRejected: pausing.event_rejected,
    events.RecordRejected: rejected_records.record_rejected,
    events.RecoveryBegun: recovering.begun,
    events.NodeConnected: _node_connected,
    events.NodeDisconnected: liveness.disconnected,
    events.PeerReported: liveness.peer_reported,
    events.PeerJudged: liveness.peer_judged,
    events.FindingRaised: nodes.finding_raised,
    events.FindingCleared: nodes.finding_cleared,
    events.CheckFinished: nodes.check_finished,
    events.OperatorIsolated: nodes.operator_isolated,
    events.OperatorReleased: nodes.operator_released,
    events.OperatorDrained: nodes.operator_drained,
    events.MaintenanceOrdered: maintenance.ordered,
    events.MaintenanceCancelled: maintenance.cancelled,
    events.RestartOrdered: planned.restart_ordered,
    events.RestartCancelled: cancelling.restart_cancelled,
    events.AutomationPaused: pausing.paused,
    events.AutomationResumed: pausing.resumed,
    events.InjectionOrdered: injections.ordered,
    events.InjectionCleared: injections.cleared,
    events.InjectionChanged: injections.changed,
    events.OperatorForgotJob: forgetting.job_forgotten,
    events.LauncherJoined: admission.launcher_joined,
    events.LauncherLeft: jobs.launcher_left,
    events.PhaseReached: running.phase_reached,
    events.RankExited: jobs.rank_exited,
    events.RollbackAsked: rollback.asked,
    events.RestartedHere: adopting.restarted_here,
    events.GenerationStopped: jobs.generation_stopped,
    events.GenerationFinished: running.generation_finished,
    events.JobProgressed: running.progressed,
    events.StepRecoverable: planned.step_recoverable,
    events.KeeperChosen: running.keeper_chosen,
    events.CadenceChosen: running.cadence_chosen,
    events.LayoutLearned: running.layout_learned,
    events.RecoveryStepChosen: starting.step_chosen,
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
