"""Node lifecycle as a table with effects; a pair that is neither in it nor ignored is refused.

A second table has what each state waits for, and for how long.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from everstep_controller.core.actions import RunCheck, RunPairTest
from everstep_controller.core.model.node import AUTOMATION, NodeRecord, NodeState
from everstep_controller.core.model.pair_test import PAIR_ROUNDS, PAIR_WORK_NS
from everstep_controller.core.model.state import State
from everstep_controller.core.model.timers import Overdue, Wait
from everstep_controller.core.nodes import claims, indexing
from everstep_controller.core.turn import Reconciliation, TimerKind


class NodeEvent(Enum):
    """Event that may change a node's health state."""

    # By identity: tables and sets are searched by it at each event; Enum hashes in Python.
    __hash__ = object.__hash__

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


class NodeEffect(Enum):
    """Effect of a transition: what the controller does besides changing the state."""

    CHECK = auto()
    CLAIM = auto()
    CLAIM_DEAD = auto()
    RELEASE = auto()
    START_PROBATION = auto()


@dataclass(frozen=True, slots=True)
class NodeTransition:
    """The state that an event leads to, and its effects."""

    to: NodeState
    effects: tuple[NodeEffect, ...] = ()


_S, _E, _X = NodeState, NodeEvent, NodeEffect

_FAILED = NodeTransition(_S.REPAIRING, (_X.CLAIM,))

_LOST = NodeTransition(_S.LOST, (_X.CLAIM_DEAD,))

_VALIDATE = NodeTransition(_S.VALIDATING, (_X.CHECK,))

_BLAMED = NodeTransition(_S.VALIDATING, (_X.CLAIM, _X.CHECK))

_MAINTAINED: dict[tuple[NodeState, NodeEvent], NodeTransition] = {
    (state, _E.MAINTENANCE_BEGUN): NodeTransition(_S.MAINTENANCE)
    for state in _S
    if state not in (_S.RETIRED, _S.MAINTENANCE)
}

TRANSITIONS: Mapping[tuple[NodeState, NodeEvent], NodeTransition] = MappingProxyType(
    {
        (_S.JOINING, _E.CONNECTED): _VALIDATE,
        (_S.JOINING, _E.SILENT): _LOST,
        (_S.VALIDATING, _E.CONNECTED): _VALIDATE,
        (_S.VALIDATING, _E.CHECK_PASSED): NodeTransition(_S.HEALTHY),
        (_S.VALIDATING, _E.RECHECK_PASSED): NodeTransition(
            _S.PROBATION, (_X.RELEASE, _X.START_PROBATION)
        ),
        (_S.VALIDATING, _E.CHECK_FAILED): _FAILED,
        (_S.VALIDATING, _E.FATAL_FINDING): _FAILED,
        (_S.VALIDATING, _E.SILENT): _LOST,
        (_S.HEALTHY, _E.DEGRADED_FINDING): NodeTransition(_S.SUSPECT),
        (_S.HEALTHY, _E.FATAL_FINDING): _FAILED,
        (_S.HEALTHY, _E.BLAMED): _BLAMED,
        (_S.HEALTHY, _E.SILENT): _LOST,
        (_S.SUSPECT, _E.FATAL_FINDING): _FAILED,
        (_S.SUSPECT, _E.BLAMED): _BLAMED,
        (_S.SUSPECT, _E.CLEARED): NodeTransition(_S.HEALTHY),
        (_S.SUSPECT, _E.SILENT): _LOST,
        (_S.PROBATION, _E.DEGRADED_FINDING): NodeTransition(_S.SUSPECT),
        (_S.PROBATION, _E.FATAL_FINDING): _FAILED,
        (_S.PROBATION, _E.BLAMED): _BLAMED,
        (_S.PROBATION, _E.PROBATION_OVER): NodeTransition(_S.HEALTHY),
        (_S.PROBATION, _E.SILENT): _LOST,
        (_S.REPAIRING, _E.REPAIRED): _VALIDATE,
        (_S.REPAIRING, _E.CLEARED): _VALIDATE,
        (_S.REPAIRING, _E.SILENT): _LOST,
        (_S.LOST, _E.CONNECTED): _VALIDATE,
        # Within maintenance nothing else counts: neither silence nor findings nor a reboot.
        **_MAINTAINED,
        (_S.MAINTENANCE, _E.MAINTENANCE_OVER): _VALIDATE,
    }
)


_WELL = "it was in no doubt"
_IN_CHECK = "its check decides, and sees what is found meanwhile"
_OUT = "it takes no ranks already"
_NOT_REPAIRED = "nothing of it is being repaired"

# Pairs that come about and mean nothing, each with the reason.
IGNORED: Mapping[tuple[NodeState, NodeEvent], str] = MappingProxyType(
    {
        (state, _E.CONNECTED): "its agent was away, and its health is what it was"
        for state in (_S.HEALTHY, _S.SUSPECT, _S.REPAIRING, _S.PROBATION)
    }
    | {(state, _E.CLEARED): _WELL for state in (_S.HEALTHY, _S.PROBATION)}
    | {
        (_S.VALIDATING, _E.CLEARED): _IN_CHECK,
        (_S.VALIDATING, _E.DEGRADED_FINDING): _IN_CHECK,
        (_S.SUSPECT, _E.DEGRADED_FINDING): "it is in doubt already",
    }
    | {
        (state, event): _OUT
        for state in (_S.REPAIRING, _S.LOST)
        for event in (_E.DEGRADED_FINDING, _E.FATAL_FINDING, _E.BLAMED)
    }
    | {(_S.VALIDATING, _E.BLAMED): _OUT}
    | {(_S.LOST, _E.CLEARED): "it is judged by what is open when it comes back"}
    | {
        (state, _E.REPAIRED): _NOT_REPAIRED
        for state in (_S.VALIDATING, _S.HEALTHY, _S.SUSPECT, _S.PROBATION, _S.LOST)
    }
    | {
        (_S.MAINTENANCE, _E.CONNECTED): "somebody works on it, and it is checked after that",
        (_S.MAINTENANCE, _E.MAINTENANCE_BEGUN): "one window follows another",
    }
)


# What a node waits for in each state (checks.py sees to the timer CHECK).
WAITS: Mapping[NodeState, Wait] = MappingProxyType(
    {
        # It lasts no longer than the first Hello of its agent.
        _S.JOINING: Wait(),
        _S.VALIDATING: Wait(
            "the result of its check",
            TimerKind.CHECK,
            "check_timeout_ns",
            (Overdue.ASK_AGAIN, Overdue.TELL_PEOPLE),
        ),
        _S.HEALTHY: Wait(),
        _S.SUSPECT: Wait(
            "the end of what was found",
            endless="it takes ranks meanwhile, as the last choice; a finding is cleared by "
            "evidence alone, and 'everstep why' names it",
        ),
        _S.REPAIRING: Wait(
            "its repair",
            TimerKind.CHECK,
            "recheck_ns",
            (Overdue.ASK_AGAIN,),
            endless="a fatal finding that stays open is for people, who are told of it and of "
            "'everstep release'; where only a check failed, it is repeated",
        ),
        _S.PROBATION: Wait(
            "a time without findings", TimerKind.PROBATION, "probation_ns", (Overdue.GO_ON,)
        ),
        _S.LOST: Wait(
            "its agent",
            endless="nothing of it can be asked anything: people are told, jobs go on without it, "
            "and it is checked when it connects",
        ),
        _S.MAINTENANCE: Wait(
            "the end of its window",
            endless="a window has an end, and an operator may cancel it",
        ),
        _S.RETIRED: Wait(),
    }
)


class NodeTransitionRefusedError(Exception):
    """Something was said of a node that cannot happen in its state."""


def step(state: NodeState, event: NodeEvent) -> NodeTransition | None:
    """Return what the event does; None where it means nothing.

    Raises NodeTransitionRefusedError.
    """
    if (state, event) in IGNORED:
        return None
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise NodeTransitionRefusedError(f"a node that is {state.value} cannot take {event.name}")
    return found


def move_node(
    turn: Reconciliation, node: NodeRecord, event: NodeEvent, reason: str, condition: str = ""
) -> None:
    """Take a node through its lifecycle table; ``condition``: for which a claim would be.

    Raises NodeTransitionRefusedError.
    """
    found = step(node.state, event)
    if found is None:
        return
    if found.to is not node.state:
        turn.mark_node(node.name)
        node.state, node.since_ns, node.reason = found.to, turn.now_ns, reason
        indexing.note_hearing(turn, node)
        turn.announce(
            node.name,
            f"Node{found.to.value.title()}",
            f"{node.name} is {found.to.value}: {reason}",
        )
    for effect in found.effects:
        _EFFECTS[effect](turn, node, claims.ClaimCause(AUTOMATION, reason, condition))


# A check that is not answered is ordered again after twice as long each time, so often.
_DOUBLED_MAX = 16


def check_anew(turn: Reconciliation, node: NodeRecord) -> None:
    """Have a node checked, whatever came of the check before."""
    node.health.checks += 1
    node.health.check_failed = ""
    turn.order(check_order(node))
    settings = turn.state.settings
    after_ns = settings.check_timeout_ns << min(node.health.checks_unanswered, _DOUBLED_MAX)
    most_ns = max(settings.check_timeout_ns, settings.recheck_max_ns)
    turn.set_timer(f"{TimerKind.CHECK}/{node.name}", min(after_ns, most_ns))


def _check(turn: Reconciliation, node: NodeRecord, _: claims.ClaimCause) -> None:
    check_anew(turn, node)


def _claim(turn: Reconciliation, node: NodeRecord, cause: claims.ClaimCause) -> None:
    claims.claim(turn, node, cause)


def _claim_dead(turn: Reconciliation, node: NodeRecord, cause: claims.ClaimCause) -> None:
    claims.claim(turn, node, cause, dead=True)


def _release(turn: Reconciliation, node: NodeRecord, cause: claims.ClaimCause) -> None:
    claims.unclaim(turn, node, cause.owner, cause.reason)
    if claims.is_maintained(node):
        claims.end_maintenance(turn, node, cause.reason)


def _start_probation(turn: Reconciliation, node: NodeRecord, _: claims.ClaimCause) -> None:
    turn.set_timer(f"{TimerKind.PROBATION}/{node.name}", turn.state.settings.probation_ns)


_EFFECTS: Mapping[NodeEffect, Callable[[Reconciliation, NodeRecord, claims.ClaimCause], None]] = {
    NodeEffect.CHECK: _check,
    NodeEffect.CLAIM: _claim,
    NodeEffect.CLAIM_DEAD: _claim_dead,
    NodeEffect.RELEASE: _release,
    NodeEffect.START_PROBATION: _start_probation,
}


# --- orders --------------------------------------------------------------------------------------


def unanswered_checks(node: NodeRecord) -> Iterator[RunCheck]:
    """Yield the checks that a node has been asked for and has not answered."""
    if node.state is NodeState.VALIDATING:
        yield check_order(node)
    if node.spare_check.asked:
        yield spare_check_order(node)


def check_order(node: NodeRecord) -> RunCheck:
    """Return the order to check a node before it may take ranks."""
    return RunCheck(
        id=f"{node.name}/check/{node.health.checks}", node=node.name, reason=node.reason
    )


def spare_check_order(node: NodeRecord) -> RunCheck:
    """Return the order to check a node while it waits."""
    return RunCheck(
        id=f"{node.name}/spare-check/{node.spare_check.number}",
        node=node.name,
        reason="it waits as a spare",
    )


def unanswered_pair_tests(state: State, node: NodeRecord) -> Iterator[RunPairTest]:
    """Yield the pair test that a node takes part in and has not answered."""
    subject = state.nodes.get(node.pair.partner_of or node.name)
    running = subject.pair.running if subject is not None else None
    if subject is None or running is None or node.name in running.answers:
        return
    if node is subject or node.name in running.partners:
        yield RunPairTest(
            id=running.id,
            node=node.name,
            reason=f"{subject.name} is compared with {' and '.join(running.partners)}",
            rounds=PAIR_ROUNDS,
            deadline_ns=PAIR_WORK_NS,
        )
