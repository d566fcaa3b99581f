"""Outstanding orders: everything that the state still calls for, of all nodes and jobs."""

from collections.abc import Iterator

from everstep_controller.core.actions import Action, SetTimer
from everstep_controller.core.jobs.orders import for_member, refuse
from everstep_controller.core.jobs.restore_point import choose_step
from everstep_controller.core.model.job import JobState
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import isolation, lifecycle
from everstep_controller.core.nodes.injections import injection_orders
from everstep_controller.core.nodes.liveness import confirmation_order


def outstanding(state: State) -> Iterator[Action]:
    """Yield everything that the state still calls for."""
    for timer, at_ns in state.timers.items():
        yield SetTimer(id=f"timer/{timer}/{at_ns}", timer=timer, at_ns=at_ns)
    yield from isolation.outstanding_calls(state)
    for node in state.nodes.values():
        yield from for_node(state, node)
    for job in state.jobs.values():
        if job.state in (JobState.REPLANNING, JobState.WAITING_STATE):
            yield choose_step(state, job)


def for_node(state: State, node: NodeRecord) -> Iterator[Action]:
    """Yield what a node should be told now, also after it has been away."""
    yield from lifecycle.unanswered_checks(node)
    for silent in state.nodes.values():
        waiting = silent.confirmation
        if waiting and node.name in waiting.asked and node.name not in waiting.verdicts:
            yield confirmation_order(silent, node.name)
    for injection in node.injections.values():
        yield from injection_orders(node.name, injection)
    for job in state.jobs.values():
        yield from for_member(state, job, node.name)
    for key, reason in state.refusals.items():
        job_name, _, node_name = key.rpartition("@")
        if node_name == node.name:
            yield refuse(job_name, node_name, reason)
