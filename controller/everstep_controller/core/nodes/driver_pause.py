"""Pause of drivers: one word of an operator, and no scheduler is told anything any more.

Schedulers are still read, and Everstep's own placement goes on: a node with a claim takes no ranks.
What differs meanwhile is told to the schedulers when an operator has them told again.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.events import OperatorOrder
from everstep_controller.core.model.node import OpenFinding
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.nodes import isolation, isolation_view
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Turn

RESUME = "everstep resume --drivers"

DRIVERS_PAUSED = Condition(
    name="DriversPaused",
    component="controller/drivers",
    meaning="no scheduler is told anything: work may be placed on nodes that are isolated here, "
    "and nodes that are free here may be withheld",
    source="an operator's order: 'everstep pause --drivers'",
    clears_when="an operator says so: 'everstep resume --drivers'",
    mode=Mode.ADVISE,
)


@dataclass(frozen=True, slots=True)
class DriversPaused(OperatorOrder):
    """An operator wants no scheduler told anything; they are still read."""

    operator: str
    reason: str


@dataclass(frozen=True, slots=True)
class DriversResumed(OperatorOrder):
    """An operator wants schedulers told again, of all that differs by now."""

    operator: str


def drivers_paused(turn: Turn, event: DriversPaused) -> None:
    """Have no scheduler told anything."""
    state = turn.state
    why = f"{event.operator}: {event.reason}" if event.reason else event.operator
    if not state.drivers_paused:
        state.drivers_paused_ns = turn.now_ns
        isolation.forget_asked(state)
    state.drivers_paused = why
    turn.announce(CONTROLLER, DRIVERS_PAUSED.name, f"no scheduler is told anything: {why}")


def drivers_resumed(turn: Turn, event: DriversResumed) -> None:
    """Have all schedulers read, and told what differs."""
    state = turn.state
    if not state.drivers_paused:
        return
    state.drivers_paused, state.drivers_paused_ns = "", 0
    isolation.restart_drivers(turn)
    turn.unsent.drivers.update(state.drivers)
    turn.announce(CONTROLLER, "DriversResumed", f"schedulers are told again, by {event.operator}")


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding while drivers are paused."""
    if not state.drivers_paused:
        return
    waiting = isolation_view.waiting_nodes(state)
    some = f"{len(waiting)} node{'s' * (len(waiting) != 1)} would be told of now" if waiting else ""
    finding = Finding(
        component=DRIVERS_PAUSED.component,
        condition=DRIVERS_PAUSED.name,
        mode=DRIVERS_PAUSED.mode,
        severity=Severity.DEGRADED,
        message=f"no scheduler is told anything: {state.drivers_paused}",
        evidence=some,
        suggested_action=SuggestedAction.WATCH,
        rule=f"cleared by '{RESUME}'; schedulers are read meanwhile, and Everstep itself places "
        "nothing on a claimed node",
    )
    yield OpenFinding(finding, state.drivers_paused_ns)


HANDLERS: Handlers = {
    DriversPaused: drivers_paused,
    DriversResumed: drivers_resumed,
}
