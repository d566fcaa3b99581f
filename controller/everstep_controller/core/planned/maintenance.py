"""Maintenance: jobs leave the nodes before a window begins, and nothing is judged within it."""

from everstep_controller.core import events
from everstep_controller.core.events import MaintenanceCancelled, MaintenanceOrdered
from everstep_controller.core.model.node import MAINTENANCE, NodeRecord, NodeState
from everstep_controller.core.model.state import State, current_name
from everstep_controller.core.model.windows import Span, Window, WindowState, holding, problem
from everstep_controller.core.nodes import claims, evidence, lifecycle
from everstep_controller.core.nodes.lifecycle import NodeEvent
from everstep_controller.core.planned import forecast, restarts
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn


def problem_with(state: State, span: Span, now_ns: int) -> str:
    """Return what is wrong with a window, in one sentence; empty for nothing."""
    least_ns = state.settings.maintenance_duration_min_ns
    return problem(span, state.nodes, state.windows.values(), now_ns, least_ns)


def maintenance_ordered(turn: Turn, event: MaintenanceOrdered) -> None:
    """Plan a window; one that was fine when it was asked for and is not any more is dropped."""
    state = turn.state
    nodes = dict.fromkeys(current_name(state, name) for name in event.nodes)
    span = Span(tuple(nodes), event.begin_ns, event.end_ns)
    if problem_with(state, span, turn.now_ns):
        return
    state.windows_ordered += 1
    window = Window(
        f"m-{state.windows_ordered}",
        span,
        event.operator,
        event.reason,
        turn.now_ns,
        forecast.lead_ns(state, span),
    )
    state.windows[window.id] = window
    for name in span.nodes:
        turn.announce(name, "MaintenancePlanned", f"{name}: {window.sentence()}")
    turn.mark_window(window.id)


def maintenance_cancelled(turn: Turn, event: MaintenanceCancelled) -> None:
    """Give a window up: its nodes are as before, or come back now when it has begun."""
    window = turn.state.windows.get(event.window)
    if window is None or not window.open:
        return
    window.ended_by = event.operator
    turn.mark_window(window.id)


def window_due(turn: Turn, name: str) -> None:
    """The time has come for what is next of a window; one that is over is forgotten."""
    window = turn.state.windows.get(name)
    if window is not None and window.open:
        turn.mark_window(name)
    elif window is not None:
        del turn.state.windows[name]


# --- reconciliation ------------------------------------------------------------------------------


def reconcile_window(turn: Reconciliation, window: Window) -> None:
    """Take a window as far as the time, or an operator's word, says."""
    if window.open and window.ended_by:
        _cancel(turn, window)
    elif window.open:
        _advance(turn, window)


def _cancel(turn: Reconciliation, window: Window) -> None:
    reason = f"maintenance {window.id} was cancelled by {window.ended_by}"
    if window.state is WindowState.BEGUN:
        _end(turn, window, reason)
    elif window.state is WindowState.DRAINING:
        _give_back(turn, window, reason)
    window.state = WindowState.CANCELLED
    _announce_everywhere(turn, window, "MaintenanceCancelled", reason)
    _set_timer(turn, window, turn.now_ns + turn.state.settings.ended_job_retention_ns)


def _set_timer(turn: Reconciliation, window: Window, at_ns: int) -> None:
    timer = f"{TimerKind.MAINTENANCE}/{window.id}"
    if turn.state.timers.get(timer) != at_ns:
        turn.set_timer(timer, at_ns - turn.now_ns)


def _advance(turn: Reconciliation, window: Window) -> None:
    """Take a window as far as the time says, and have it reconciled when more is due."""
    span, now_ns = window.span, turn.now_ns
    settings = turn.state.settings
    if window.state is not WindowState.BEGUN and now_ns >= span.end_ns:
        _missed(turn, window)
        return
    stop_ns = span.begin_ns - min(window.lead_ns, settings.maintenance_stop_lead_ns)
    if window.state is WindowState.PLANNED and now_ns >= span.begin_ns - window.lead_ns:
        _drain(turn, window)
    if window.state is WindowState.DRAINING and now_ns >= stop_ns and not window.vacated:
        _vacate(turn, window)
    if window.state is WindowState.DRAINING and now_ns >= span.begin_ns:
        _begin(turn, window)
    if window.state is WindowState.BEGUN and now_ns >= span.end_ns:
        window.state = WindowState.OVER
        _end(turn, window, f"maintenance {window.id} is over")
        _announce_everywhere(turn, window, "MaintenanceOver", f"maintenance {window.id} is over")
    _set_timer(turn, window, _next_ns(turn, window, stop_ns))


def _next_ns(turn: Reconciliation, window: Window, stop_ns: int) -> int:
    span = window.span
    if window.state is WindowState.PLANNED:
        return span.begin_ns - window.lead_ns
    if window.state is WindowState.DRAINING:
        return span.begin_ns if window.vacated else stop_ns
    if window.state is WindowState.BEGUN:
        return span.end_ns
    return turn.now_ns + turn.state.settings.ended_job_retention_ns


def _missed(turn: Reconciliation, window: Window) -> None:
    reason = f"{window.sentence()} passed while nobody was here"
    if window.state is WindowState.DRAINING:
        _give_back(turn, window, reason)
    window.state = WindowState.OVER
    _announce_everywhere(turn, window, "MaintenanceMissed", reason)
    _set_timer(turn, window, turn.now_ns + turn.state.settings.ended_job_retention_ns)


def _drain(turn: Reconciliation, window: Window) -> None:
    window.state = WindowState.DRAINING
    for node in _nodes(turn.state, window):
        claims.drain(turn, node, claims.ClaimCause(MAINTENANCE, window.sentence()))
    for name, interruption in forecast.window_forecasts(turn.state, window):
        if interruption:
            turn.announce(name, "MaintenanceInterrupts", interruption)


def _vacate(turn: Reconciliation, window: Window) -> None:
    window.vacated = True
    for node in _nodes(turn.state, window):
        claim = node.claim_of(MAINTENANCE)
        if claim is not None:
            claim.vacate = True
            turn.mark_node(node.name)
    for job in forecast.jobs_in_span(turn.state, window.span):
        restarts.drop_distant_step(turn.state, job)


def _begin(turn: Reconciliation, window: Window) -> None:
    window.state = WindowState.BEGUN
    for node in _nodes(turn.state, window):
        node.liveness.absent, node.liveness.silent_to = node.gone, []
        evidence.expect_nothing(turn, node)
        claims.claim(turn, node, claims.ClaimCause(MAINTENANCE, window.sentence()))
        lifecycle.move_node(turn, node, NodeEvent.MAINTENANCE_BEGUN, window.sentence())
        # Where one window follows another, the state stays, and only the reason changes.
        node.reason = window.sentence()


def _end(turn: Reconciliation, window: Window, reason: str) -> None:
    """Have nodes checked; one whose agent is away is silent from now on, and judged as such.

    Jobs are told nothing: these nodes took no ranks before, and take none yet.
    """
    for node in _nodes(turn.state, window):
        following = holding(turn.state.windows.values(), node.name, besides=window.id)
        if following is not None and following.span.begin_ns <= turn.now_ns:
            continue  # it goes on, whichever of the two timers came due first
        away, node.liveness.absent = node.liveness.absent, False
        told = f"{reason}, and its agent is not back" if away else reason
        lifecycle.move_node(turn, node, NodeEvent.MAINTENANCE_OVER, told)
        if away:
            evidence.expect_again(turn, node)


def _give_back(turn: Reconciliation, window: Window, reason: str) -> None:
    """Take back what draining the nodes has claimed; another window may still keep them."""
    for node in _nodes(turn.state, window):
        claim = node.claim_of(MAINTENANCE)
        if claim is not None and claim.draining:
            claims.end_maintenance(turn, node, reason, window=window.id)


def _announce_everywhere(turn: Reconciliation, window: Window, word: str, message: str) -> None:
    for name in window.span.nodes:
        turn.announce(name, word, f"{name}: {message}")


def _nodes(state: State, window: Window) -> list[NodeRecord]:
    found = (state.nodes.get(name) for name in window.span.nodes)
    return [node for node in found if node is not None and node.state is not NodeState.RETIRED]


HANDLERS: Handlers = {
    events.MaintenanceOrdered: maintenance_ordered,
    events.MaintenanceCancelled: maintenance_cancelled,
}
TIMERS: Timers = {
    TimerKind.MAINTENANCE: window_due,
}
