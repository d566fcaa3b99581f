"""Orders about nodes: checks, questions about silent peers, and injections."""

from collections.abc import Iterator

from everstep_common.reports import InjectionState
from everstep_controller.core.actions import (
    Action,
    ClearInjection,
    ConfirmSilence,
    Inject,
    RunCheck,
)
from everstep_controller.core.model.node import (
    Injection,
    NodeRecord,
    NodeState,
)


def unanswered(node: NodeRecord) -> Iterator[RunCheck]:
    """Yield the checks that a node has been asked for and has not answered."""
    if node.state is NodeState.VALIDATING:
        yield check(node)
    if node.spare_check.asked:
        yield spare_check(node)


def check(node: NodeRecord) -> RunCheck:
    """Return the order to check a node before it may take ranks."""
    return RunCheck(id=f"{node.name}/check/{node.checks}", node=node.name, reason=node.reason)


def spare_check(node: NodeRecord) -> RunCheck:
    """Return the order to check a node while it waits."""
    return RunCheck(
        id=f"{node.name}/spare-check/{node.spare_check.number}",
        node=node.name,
        reason="it waits as a spare",
    )


def for_injection(node: str, injection: Injection) -> Iterator[Action]:
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


def confirm(silent: NodeRecord, node: str) -> ConfirmSilence:
    """Return the question to a node about a silent peer."""
    return ConfirmSilence(
        id=silent.confirmation.id if silent.confirmation else "",
        node=node,
        reason=f"{silent.name} is silent",
        peer=silent.name,
        peer_address=silent.liveness_address,
    )
