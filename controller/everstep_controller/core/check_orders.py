"""Orders to look at a node: in its own life, and while it waits as a spare."""

from collections.abc import Iterator

from everstep_controller.core.actions import RunCheck
from everstep_controller.core.state import NodeRecord, NodeState


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
