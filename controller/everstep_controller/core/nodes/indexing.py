"""Indexing: has the fleet's index file a node as its record is, and does what follows from that.

Whoever changes a record in what the index is computed from has the node filed anew, here.
"""

from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import forget_away
from everstep_controller.core.nodes import budgets
from everstep_controller.core.turn import Turn


def refresh(turn: Turn, node: NodeRecord) -> None:
    """File a node as its record is now; one that is isolated no more leaves room for others."""
    state = turn.state
    counted = state.index.is_isolated(node.name)
    state.index.refresh(node, state.filing_basis())
    if counted and not state.index.is_isolated(node.name):
        budgets.mark_deferred(turn)


def note_hearing(turn: Turn, node: NodeRecord) -> None:
    """File a node whose channels or health have changed, and have the outage know of it."""
    refresh(turn, node)
    if not turn.state.index.is_away(node.name):
        forget_away(turn.state, node.name)
