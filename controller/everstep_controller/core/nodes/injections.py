"""Injections: faults on purpose, ordered by operators, answered by nodes, and forgotten later."""

from collections.abc import Iterator

from everstep_common import reports
from everstep_common.reports import InjectionChanged, InjectionState
from everstep_controller.core import events
from everstep_controller.core.actions import Action, ClearInjection, Inject
from everstep_controller.core.events import InjectionCleared, InjectionOrdered, Reported
from everstep_controller.core.model.injection import Injection
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.registry import Handlers, Timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

_SECOND_NS = 1_000_000_000

# An order that a node gets later than this would surprise those who run the drill.
STALE_NS = 30 * _SECOND_NS

# So long an injection is listed after it should have ended.
LISTED_NS = 600 * _SECOND_NS


def injection_ordered(turn: Turn, event: InjectionOrdered) -> None:
    """An operator orders a fault."""
    node = turn.state.nodes[event.node]
    node.injections.ordered += 1
    injection = Injection(
        id=f"{node.name}/inject/{node.injections.ordered}",
        spec=event.spec,
        duration_ns=event.duration_ns,
        operator=event.operator,
        reason=event.reason,
        ordered_ns=turn.now_ns,
    )
    node.injections.by_id[injection.id] = injection
    turn.set_timer(f"{TimerKind.INJECTION}/{injection.id}", event.duration_ns + LISTED_NS)
    why = f": {event.reason}" if event.reason else ""
    seconds = event.duration_ns / _SECOND_NS
    message = f"{event.operator} injects {event.spec} into {node.name} for {seconds:g} s{why}"
    turn.announce(node.name, "InjectionOrdered", message)
    _note_ordered(turn, node, injection)


def injection_cleared(turn: Turn, event: InjectionCleared) -> None:
    """An operator orders the end of one injection, or of all."""
    node = turn.state.nodes[event.node]
    for injection in node.injections.by_id.values():
        if event.injection in ("", injection.id) and not injection.over:
            injection.clearing = True
            message = f"{event.operator} ends {injection.spec} on {node.name}"
            turn.announce(node.name, "InjectionClearOrdered", message)
            _note_ordered(turn, node, injection)


def _note_ordered(turn: Turn, node: NodeRecord, injection: Injection) -> None:
    node.news.injections.append(injection.id)
    turn.mark_node(node.name)


def injection_changed(turn: Turn, event: Reported[InjectionChanged]) -> None:
    """Take a node's answer."""
    report = event.report
    node = turn.state.nodes[event.origin.node]
    injection = node.injections.by_id.get(report.injection)
    if injection is None or injection.over:
        return
    if report.state is not InjectionState.ORDERED:
        _move(turn, node, injection, report.state, report.message)


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Order what is news; of a node that comes back, give up what did not reach it in time."""
    ordered, node.news.injections = node.news.injections, []
    for injection in (node.injections.by_id[name] for name in ordered):
        turn.order(*injection_orders(node.name, injection))
    if node.news.connected:
        _expire_orders(turn, node)


def _expire_orders(turn: Reconciliation, node: NodeRecord) -> None:
    for injection in node.injections.by_id.values():
        waiting = injection.state is InjectionState.ORDERED
        if waiting and turn.now_ns - injection.ordered_ns > STALE_NS:
            message = f"{node.name} was away, and the order is too old now"
            _move(turn, node, injection, InjectionState.ENDED, message)


def forget_injection(turn: Turn, name: str) -> None:
    """Forget an injection whose time is long over."""
    node = turn.state.nodes.get(name.partition("/")[0])
    if node is not None:
        node.injections.by_id.pop(name, None)


def _move(
    turn: Turn, node: NodeRecord, injection: Injection, to: InjectionState, message: str
) -> None:
    injection.state, injection.message = to, message
    said = f"{injection.spec} on {node.name} is {to.value}: {message}"
    turn.announce(node.name, f"Injection{to.value.title()}", said)


def injection_orders(node: str, injection: Injection) -> Iterator[Action]:
    """Yield what a node has not answered yet of an injection."""
    if injection.clearing and not injection.over:
        yield ClearInjection(
            id=f"{injection.id}/clear",
            node=node,
            reason="its end was ordered",
            injection=injection.id,
        )
    elif injection.state is InjectionState.ORDERED:
        yield Inject(
            id=injection.id,
            node=node,
            reason=f"injected by {injection.operator}: {injection.reason or 'no reason given'}",
            spec=injection.spec,
            duration_ns=injection.duration_ns,
        )


HANDLERS: Handlers = {
    events.InjectionOrdered: injection_ordered,
    events.InjectionCleared: injection_cleared,
    reports.InjectionChanged: injection_changed,
}
TIMERS: Timers = {
    TimerKind.INJECTION: forget_injection,
}
