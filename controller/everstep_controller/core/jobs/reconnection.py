"""Reconnection of an agent: its knowledge of jobs, compared with what the controller knows."""

from everstep_controller.core.events import NodeConnected
from everstep_controller.core.jobs import identity, membership, outstanding
from everstep_controller.core.model.facts import JobOnNode
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.nodes import connection
from everstep_controller.core.turn import Turn


def node_connected(turn: Turn, event: NodeConnected) -> None:
    """Take an agent's Hello: its node, and what it still knows of jobs; or halt before it."""
    state = turn.state
    state.highest_term_seen = max(state.highest_term_seen, event.highest_term)
    newer = _what_is_newer(state, event)
    if newer and not state.halted:
        state.halted = (
            f"{event.node} has seen {newer}: this journal is old, or another controller runs; stop "
            "the other one, or run 'everstep-controller recover'"
        )
        turn.announce(CONTROLLER, "ControllerHalted", state.halted)
    if state.halted:
        for seen in event.jobs:
            known = state.generations_seen.get(seen.job, 0)
            state.generations_seen[seen.job] = max(known, seen.generation)
        return
    node = state.nodes.setdefault(event.node, NodeRecord(event.node, since_ns=turn.now_ns))
    kept = () if connection.has_rebooted(node, event) else event.jobs
    silent_since_ns = node.silent_since_ns or turn.now_ns
    connection.record_hello(turn, node, event)
    membership.node_back(turn, node.name, {seen.job: seen for seen in kept}, silent_since_ns)
    identity.tell_late_launchers_on(turn, node.name, kept)
    turn.actions.extend(outstanding.for_node(state, node))
    node.welcomed_term = state.term


def _what_is_newer(state: State, event: NodeConnected) -> str:
    """Return what an agent has seen that this journal does not know; empty when it knows all."""
    node = state.nodes.get(event.node)
    mine = node is not None and node.welcomed_term == state.term
    if event.highest_term > state.term or (event.highest_term == state.term and not mine):
        return f"term {event.highest_term}, which is not of this journal"
    for seen in event.jobs:
        job = state.job(seen.job)
        # What a recovery has learned of a job that the journal lost is known from then on.
        known = state.generations_seen.get(seen.job, 0)
        own = job is not None and _is_own(job, event.node, seen)
        if seen.generation > max(known, job.generation.number if job else 0) and not own:
            return f"generation {seen.generation} of {seen.job}, which this journal does not know"
    return ""


def _is_own(job: JobRecord, node: str, seen: JobOnNode) -> bool:
    """Return whether a generation that only an agent knows is one that its plan allowed it."""
    left = job.generation.number + job.generation.own_restarts
    mine = 0 < seen.planned_generation <= job.generation.number
    return job.generation.members == [node] and mine and seen.generation <= left
