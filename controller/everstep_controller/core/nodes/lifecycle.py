"""Node lifecycle as a table with effects, and the transition of a node through it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from everstep_controller.core.actions import RunCheck
from everstep_controller.core.model.node import AUTOMATION, NodeRecord, NodeState
from everstep_controller.core.nodes import claims
from everstep_controller.core.turn import Turn


class NodeEvent(Enum):
    """Event that may change a node's health state."""

    CONNECTED = auto()
    CHECK_PASSED = auto()
    CHECK_FAILED = auto()
    # The check passed on a node that automation had claimed.
    RECHECK_PASSED = auto()
    DEGRADED_FINDING = auto()
    FATAL_FINDING = auto()
    # Ranks die there, for no reason that is known.
    BLAMED = auto()
    CLEARED = auto()
    SILENT = auto()
    REPAIRED = auto()
    PROBATION_OVER = auto()
    MAINTENANCE_BEGUN = auto()
    MAINTENANCE_OVER = auto()
    # Its maintenance is over, and its agent is not there.
    NOT_BACK = auto()


class NodeEffect(Enum):
    """Effect of a transition: what the controller does besides changing the state."""

    CHECK = auto()
    CLAIM = auto()
    CLAIM_DEAD = auto()
    RELEASE = auto()
    START_PROBATION = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """The state that an event leads to, and its effects."""

    to: NodeState
    effects: tuple[NodeEffect, ...] = ()


_S, _E, _X = NodeState, NodeEvent, NodeEffect

_FAILED = Step(_S.REPAIRING, (_X.CLAIM,))

_LOST = Step(_S.LOST, (_X.CLAIM_DEAD,))

_VALIDATE = Step(_S.VALIDATING, (_X.CHECK,))

_BLAMED = Step(_S.VALIDATING, (_X.CLAIM, _X.CHECK))

_MAINTAINED: dict[tuple[NodeState, NodeEvent], Step] = {
    (state, _E.MAINTENANCE_BEGUN): Step(_S.MAINTENANCE)
    for state in _S
    if state not in (_S.RETIRED, _S.MAINTENANCE)
}

TRANSITIONS: Mapping[tuple[NodeState, NodeEvent], Step] = MappingProxyType(
    {
        (_S.JOINING, _E.CONNECTED): _VALIDATE,
        (_S.JOINING, _E.SILENT): _LOST,
        (_S.VALIDATING, _E.CONNECTED): _VALIDATE,
        (_S.VALIDATING, _E.CHECK_PASSED): Step(_S.HEALTHY),
        (_S.VALIDATING, _E.RECHECK_PASSED): Step(_S.PROBATION, (_X.RELEASE, _X.START_PROBATION)),
        (_S.VALIDATING, _E.CHECK_FAILED): _FAILED,
        (_S.VALIDATING, _E.FATAL_FINDING): _FAILED,
        (_S.VALIDATING, _E.SILENT): _LOST,
        (_S.HEALTHY, _E.DEGRADED_FINDING): Step(_S.SUSPECT),
        (_S.HEALTHY, _E.FATAL_FINDING): _FAILED,
        (_S.HEALTHY, _E.BLAMED): _BLAMED,
        (_S.HEALTHY, _E.SILENT): _LOST,
        (_S.SUSPECT, _E.FATAL_FINDING): _FAILED,
        (_S.SUSPECT, _E.BLAMED): _BLAMED,
        (_S.SUSPECT, _E.CLEARED): Step(_S.HEALTHY),
        (_S.SUSPECT, _E.SILENT): _LOST,
        (_S.PROBATION, _E.DEGRADED_FINDING): Step(_S.SUSPECT),
        (_S.PROBATION, _E.FATAL_FINDING): _FAILED,
        (_S.PROBATION, _E.BLAMED): _BLAMED,
        (_S.PROBATION, _E.PROBATION_OVER): Step(_S.HEALTHY),
        (_S.PROBATION, _E.SILENT): _LOST,
        (_S.REPAIRING, _E.REPAIRED): _VALIDATE,
        (_S.REPAIRING, _E.CLEARED): _VALIDATE,
        (_S.REPAIRING, _E.SILENT): _LOST,
        (_S.LOST, _E.CONNECTED): _VALIDATE,
        # Within maintenance nothing else counts: neither silence nor findings nor a reboot.
        **_MAINTAINED,
        (_S.MAINTENANCE, _E.MAINTENANCE_OVER): _VALIDATE,
        (_S.MAINTENANCE, _E.NOT_BACK): _LOST,
    }
)


def step(state: NodeState, event: NodeEvent) -> Step:
    """Return what the event does."""
    return TRANSITIONS.get((state, event), Step(state))


def enter_state(
    turn: Turn, node: NodeRecord, event: NodeEvent, reason: str
) -> tuple[NodeEffect, ...]:
    """Change a node's state, check it and claim it as the table says; return all effects."""
    before, next_step = node.state, step(node.state, event)
    if next_step.to is not before:
        turn.mark_node(node.name)
        node.state, node.since_ns, node.reason = next_step.to, turn.now_ns, reason
        turn.announce(
            node.name,
            f"Node{next_step.to.value.title()}",
            f"{node.name} is {next_step.to.value}: {reason}",
        )
    for effect in next_step.effects:
        if effect is NodeEffect.CHECK:
            node.checks += 1
            turn.actions.append(check_order(node))
        elif effect in (NodeEffect.CLAIM, NodeEffect.CLAIM_DEAD):
            claims.claim(turn, node, AUTOMATION, reason, dead=effect is NodeEffect.CLAIM_DEAD)
    return next_step.effects


def unanswered_checks(node: NodeRecord) -> Iterator[RunCheck]:
    """Yield the checks that a node has been asked for and has not answered."""
    if node.state is NodeState.VALIDATING:
        yield check_order(node)
    if node.spare_check.asked:
        yield spare_check_order(node)


def check_order(node: NodeRecord) -> RunCheck:
    """Return the order to check a node before it may take ranks."""
    return RunCheck(id=f"{node.name}/check/{node.checks}", node=node.name, reason=node.reason)


def spare_check_order(node: NodeRecord) -> RunCheck:
    """Return the order to check a node while it waits."""
    return RunCheck(
        id=f"{node.name}/spare-check/{node.spare_check.number}",
        node=node.name,
        reason="it waits as a spare",
    )
