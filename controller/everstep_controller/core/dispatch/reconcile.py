"""Reconciliation: what follows from the state for all that an event has marked.

Handlers record what an event says, and mark whom it may concern. Then all that was told is taken
for what it is: launchers are admitted or refused, faults become incidents, and windows open and
close. What is marked is gone through in one order: nodes, until the verdict on each stands; the
jobs that have to do with them; planned work, spares, and what waiting launchers are told. The steps
of a node and of a job are data (`steps.py`). Each decides from the state alone, and may mark
others; when nothing is marked any more, marking everything again would change nothing. Last, when
all claims are settled, isolation drivers are asked for what differs from them, and agents that have
come back are told what is wanted of their nodes.
"""

from everstep_controller.core.dispatch.steps import STEPS, Steps
from everstep_controller.core.jobs import admission, incidents, orders
from everstep_controller.core.model.job import JobNews
from everstep_controller.core.model.state import jobs_involving
from everstep_controller.core.nodes import isolation
from everstep_controller.core.planned import maintenance, restarts, swaps
from everstep_controller.core.recovery import pair_tests, spares
from everstep_controller.core.turn import Marks, Reconciliation

# Each round ends with fewer things undecided; this many only a rule that contradicts itself needs.
_ROUNDS_MAX = 64


class UnsettledError(Exception):
    """Decisions contradict each other: the same subjects are marked again and again."""


def reconcile(turn: Reconciliation, steps: Steps = STEPS) -> None:
    """Decide for all that is marked, until nothing is. Raises UnsettledError."""
    nodes: set[str] = set()
    for _ in range(_ROUNDS_MAX):
        if not turn.marks:
            isolation.read_schedulers(turn)
            isolation.apply_claims(turn, nodes)
            _tell_agents(turn)
            return
        nodes |= _reconcile_round(turn, steps)
    raise UnsettledError(f"not settled after {_ROUNDS_MAX} rounds: {turn.marks}")


def _reconcile_round(turn: Reconciliation, steps: Steps) -> set[str]:
    """Decide once for what is marked, and return the nodes that were; no plan before a verdict."""
    _take_news(turn)
    nodes = _reconcile_nodes(turn, steps)
    marks = turn.take_marks()
    for name in nodes:
        marks.jobs.update(job.id for job in jobs_involving(turn.state, turn.state.nodes[name]))
    for job_id in sorted(marks.jobs):
        _reconcile_job(turn, job_id, steps)
    restarts.reconcile_jobs(turn, marks.jobs)
    swaps.reconcile_jobs(turn, marks.jobs)
    for job_id in marks.jobs & turn.state.jobs.keys():
        turn.state.jobs[job_id].news = JobNews()
    pair_tests.reconcile_free(turn)
    waiting = nodes | _waiting_nodes(turn, marks)
    spares.reconcile_spares(turn, waiting)
    orders.hold_where_eligibility_changed(turn, waiting)
    return nodes


def _take_news(turn: Reconciliation) -> None:
    """Take what was told for what it is, before anybody is judged by it."""
    admission.reconcile_launchers(turn)
    for window_id in turn.take_windows():
        maintenance.reconcile_window(turn, turn.state.windows[window_id])
    for job_id in sorted(turn.marks.jobs & turn.state.jobs.keys()):
        incidents.reconcile_job(turn, turn.state.jobs[job_id])


def _reconcile_nodes(turn: Reconciliation, steps: Steps) -> set[str]:
    """Judge all nodes that are marked, and those that become so by that; return them."""
    judged: set[str] = set()
    for _ in range(_ROUNDS_MAX):
        names = sorted(turn.take_nodes() & turn.state.nodes.keys())
        if not names:
            return judged
        judged.update(names)
        nodes = turn.state.nodes
        for name in names:
            for decide in steps.of_nodes:
                decide(turn, nodes[name])  # a step may put another record under the name
    raise UnsettledError(f"nodes not settled after {_ROUNDS_MAX} rounds: {turn.marks.nodes}")


def _tell_agents(turn: Reconciliation) -> None:
    """Tell agents that have come back everything that the state calls for by now."""
    if turn.unsent.everybody:
        turn.order(*orders.outstanding(turn.state))
    for name in sorted(turn.unsent.nodes & turn.state.nodes.keys()):
        turn.order(*orders.for_node(turn.state, turn.state.nodes[name]))


def _waiting_nodes(turn: Reconciliation, marks: Marks) -> set[str]:
    """Return the nodes whose launchers wait in jobs that have moved."""
    moved = (turn.state.jobs[one] for one in marks.moved if one in turn.state.jobs)
    return {name for job in moved for name in job.launchers.keys() - set(job.generation.members)}


def _reconcile_job(turn: Reconciliation, job_id: str, steps: Steps) -> None:
    job = turn.state.jobs.get(job_id)
    if job is None:
        return
    if job.after:
        for decide in steps.of_waiting_jobs:
            decide(turn, job)
    if not job.after:  # it may have begun by that
        for decide in steps.of_jobs:
            decide(turn, job)
