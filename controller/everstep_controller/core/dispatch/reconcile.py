"""Reconciliation: what follows from the state for all nodes and jobs that an event has marked.

Handlers record what an event says, and mark whom it may concern. Then everything that is marked is
gone through in one order: nodes, until the verdict on each stands; the jobs that have to do with
them; planned work, spares, and what waiting launchers are told. Each decides from the state alone,
and may mark others; when nothing is marked any more, marking everything again would change nothing.
Last, when all claims are settled, isolation drivers are asked for what differs from them, and
agents that have come back are told what is wanted of their nodes.
"""

from everstep_controller.core.jobs import admission, ending, membership, orders, progress
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import jobs_of_node
from everstep_controller.core.nodes import health, isolation, liveness
from everstep_controller.core.planned import restarts
from everstep_controller.core.recovery import blame, planning, spares, start
from everstep_controller.core.turn import Marks, Turn

# Each round ends with fewer things undecided; this many only a rule that contradicts itself needs.
_ROUNDS_MAX = 64


class UnsettledError(Exception):
    """Decisions contradict each other: the same subjects are marked again and again."""


def reconcile(turn: Turn) -> None:
    """Decide for all that is marked, until nothing is. Raises UnsettledError."""
    nodes: set[str] = set()
    for _ in range(_ROUNDS_MAX):
        if not turn.marks:
            isolation.apply_claims(turn, nodes)
            _tell_agents(turn)
            return
        nodes |= _reconcile_round(turn)
    raise UnsettledError(f"not settled after {_ROUNDS_MAX} rounds: {turn.marks}")


def _reconcile_round(turn: Turn) -> set[str]:
    """Decide once for what is marked, and return the nodes that were; no plan before a verdict."""
    nodes = _reconcile_nodes(turn)
    marks = turn.take_marks()
    for name in nodes:
        marks.jobs.update(job.name for job in jobs_of_node(turn.state, turn.state.nodes[name]))
    for name in sorted(marks.jobs):
        _reconcile_job(turn, name)
    restarts.reconcile_jobs(turn, marks.jobs)
    waiting = nodes | _waiting_nodes(turn, marks)
    spares.reconcile_spares(turn, waiting)
    orders.hold_where_eligibility_changed(turn, waiting)
    return nodes


def _reconcile_nodes(turn: Turn) -> set[str]:
    """Judge all nodes that are marked, and those that become so by that; return them."""
    judged: set[str] = set()
    for _ in range(_ROUNDS_MAX):
        names = sorted(turn.take_nodes() & turn.state.nodes.keys())
        if not names:
            return judged
        judged.update(names)
        for name in names:
            _reconcile_node(turn, turn.state.nodes[name])
    raise UnsettledError(f"nodes not settled after {_ROUNDS_MAX} rounds: {turn.marks.nodes}")


def _reconcile_node(turn: Turn, node: NodeRecord) -> None:
    liveness.reconcile_node(turn, node)
    health.reconcile_node(turn, node)
    isolation.claim_for_schedulers(turn, node)
    membership.reconcile_node(turn, node)
    blame.reconcile_node(turn, node)


def _tell_agents(turn: Turn) -> None:
    """Tell agents that have come back everything that the state calls for by now."""
    for name in sorted(turn.untold & turn.state.nodes.keys()):
        turn.actions.extend(orders.for_node(turn.state, turn.state.nodes[name]))


def _waiting_nodes(turn: Turn, marks: Marks) -> set[str]:
    """Return the nodes whose launchers wait in jobs that have moved."""
    moved = (turn.state.jobs[name] for name in marks.moved if name in turn.state.jobs)
    return {name for job in moved for name in job.launchers.keys() - set(job.generation.members)}


def _reconcile_job(turn: Turn, name: str) -> None:
    admission.admit_successors(turn, name)
    job = turn.state.jobs.get(name)
    if job is not None:
        start.reconcile_job(turn, job)
        progress.reconcile_job(turn, job)
        planning.reconsider(turn, job)
        ending.count_launchers(turn, job)
