"""Record of judged isolations: what automation would have done is counted from it afterwards.

Kept whatever the mode says, for conditions that are only observed as well: so that operators know
what a stricter mode would have cost them before they set it.
"""

from collections.abc import Iterator

from everstep_common.judging.findings import Severity
from everstep_controller.core.model.judged import JUDGED_MAX, JudgedIsolation
from everstep_controller.core.model.node import AUTOMATION, NodeRecord, NodeState
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import checks, health
from everstep_controller.core.turn import Reconciliation


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Note for what a node is isolated or would be, and what of that is over."""
    known = node.isolation.judged
    if node.state in (NodeState.LOST, NodeState.MAINTENANCE, NodeState.RETIRED):
        return  # what is away or worked on is judged when it is back
    if not known and not node.health.findings and not _is_charged(node):
        return  # most nodes
    now = set(_reasons(node))
    for condition in [name for name in known if name not in now]:
        _close(turn, known.pop(condition))
    for condition in sorted(now - known.keys()):
        known[condition] = JudgedIsolation(node.name, condition, turn.now_ns)
    claim = node.claim_of(AUTOMATION)
    if claim is not None and claim.condition in known and not claim.draining:
        known[claim.condition].done = True


def judged_isolations(state: State) -> Iterator[JudgedIsolation]:
    """Yield all that are known, over or not, in no order."""
    yield from state.judged
    for node in state.nodes.values():
        yield from node.isolation.judged.values()


def _is_charged(node: NodeRecord) -> bool:
    claimed = node.isolation.claims and node.claim_of(AUTOMATION) is not None
    return bool(claimed or node.blame.reason or node.health.check_failed)


def _reasons(node: NodeRecord) -> Iterator[str]:
    """Yield the conditions for which automation isolates it, where they are enforced."""
    for held in node.health.findings.values():
        fatal = held.finding.severity is Severity.FATAL and held.counts_against_node
        if fatal and not held.late:  # what is old isolates nobody, in any mode
            yield held.finding.condition
    if node.blame.reason:
        yield health.RANKS_DIE.name
    if node.health.check_failed:
        yield checks.CHECK_FAILED.name
    claim = node.claim_of(AUTOMATION)
    if claim is not None and claim.condition and not claim.draining:
        yield claim.condition


def _close(turn: Reconciliation, judged: JudgedIsolation) -> None:
    judged.over_ns = turn.now_ns
    turn.state.judged.append(judged)
    del turn.state.judged[:-JUDGED_MAX]
