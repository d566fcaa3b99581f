"""Late evidence on an open stream: the agent says in a new Hello what of it is still so.

What comes late behind a Hello is of the time before it, and the Hello has said what was open by
then. What an agent has seen since, and comes late all the same, was held up on its way. Its agent
is connected, so nothing would have it say so again: its stream is ended, which costs a second.
"""

from everstep_controller.core.actions import RenewStream
from everstep_controller.core.model.node import NodeRecord, OpenFinding
from everstep_controller.core.nodes import evidence_age
from everstep_controller.core.turn import Reconciliation


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Have the agent of a node say Hello anew, once, where its word was held up on its way."""
    liveness = node.liveness
    if not node.health.findings or not liveness.connected or liveness.renewing:
        return
    held_up = next((one for one in node.health.findings.values() if _is_held_up(node, one)), None)
    if held_up is None:
        return
    liveness.renewing = True
    age = evidence_age.age_text(turn.now_ns - held_up.seen_ns)
    reason = f"{held_up.finding.condition} came {age} late: say in a new Hello what is open now"
    turn.order(RenewStream(id=f"{node.name}/hello/{turn.now_ns}", node=node.name, reason=reason))


def _is_held_up(node: NodeRecord, held: OpenFinding) -> bool:
    return held.late and held.seen_ns > node.liveness.hello_ns
