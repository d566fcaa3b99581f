"""Removal of nodes: what is gone for good is forgotten, when an operator says that it is."""

from everstep_controller.core import events
from everstep_controller.core.model.fleet_index import keep_listed
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord, NodeState
from everstep_controller.core.model.node_days import add_days
from everstep_controller.core.model.state import (
    State,
    forget_away,
    jobs_involving,
)
from everstep_controller.core.nodes import agent_identity, indexing, outage, rounds
from everstep_controller.core.nodes.agent_findings import AGENT_GONE, AGENT_HUNG
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import TimerKind, Turn

# Timers whose subject is a node.
TIMERS = (
    TimerKind.SILENCE,
    TimerKind.CONFIRM,
    TimerKind.STREAM,
    TimerKind.CHECK,
    TimerKind.SPARE,
    TimerKind.PAIR,
    TimerKind.PROBATION,
    TimerKind.FLAPPING,
    TimerKind.INJECTION,
    TimerKind.CONTENDER,
    TimerKind.RENAMED,
)


def removal_problem(state: State, node: NodeRecord) -> str:
    """Return why a node is not removed, and what to do first; empty where it may be."""
    if state.halted:
        return f"the controller acts on nothing now: {state.halted}"
    if node.state is NodeState.MAINTENANCE:
        return (
            f"{node.name} is in maintenance; to end that: everstep maintenance list, and "
            "everstep maintenance cancel WINDOW"
        )
    if node.liveness.connected or not (node.gone or _is_agent_away(state, node)):
        wait_s = state.settings.agent_return_ns / 1e9
        return (
            f"{node.name} is {node.state.value} and not lost: only what is gone is removed; stop "
            f"its agent first (systemctl stop everstep-agent), and try again {wait_s:g} s later"
        )
    sentences = (_needed_by(job, node.name) for job in jobs_involving(state, node))
    return next(filter(None, sentences), "")


def _is_agent_away(state: State, node: NodeRecord) -> bool:
    """Return whether people were told that its agent is away; another one may have its address."""
    told = {one.finding.condition for one in node.health.findings.values()}
    alone = not told.isdisjoint({AGENT_GONE.name, AGENT_HUNG.name})
    return node.doubtful and (alone or outage.is_among(state, node.name))


def _needed_by(job: JobRecord, name: str) -> str:
    if job.state is JobState.WAITING_STATE and name in job.lineage.holders:
        return (
            f"{job.name} waits for the state that {name} had; see everstep why {job.name}, or stop "
            "that job first"
        )
    if job.state is not JobState.ENDED and name in job.generation.members:
        return (
            f"{name} is a member of {job.name}, which is {job.state.value}; see everstep why "
            f"{job.name}, or stop that job first"
        )
    return ""


def node_removed(turn: Turn, event: events.NodeRemoved) -> None:
    """Forget a node; one whose agent connects after all is a new one."""
    node = turn.state.nodes.get(event.node)
    if node is None or removal_problem(turn.state, node):
        return
    forget_node(turn, node)
    turn.announce(
        node.name,
        "NodeRemoved",
        f"{node.name} was removed by {event.operator}: {event.reason}",
    )


def forget_node(turn: Turn, node: NodeRecord) -> None:
    """Forget a node, in the jobs that it had to do with and among its peers."""
    _forget_in_jobs(turn, node)
    forget_among_peers(turn, node)
    _forget_record(turn, node)


# -------------------------------------------------------------------------------------------------


def _forget_in_jobs(turn: Turn, node: NodeRecord) -> None:
    """Count on no launcher and on no copy there; jobs that waited for either are reconciled."""
    for job in jobs_involving(turn.state, node):
        job.launchers.pop(node.name, None)
        job.lineage.holders.pop(node.name, None)
        job.overdue.pop(node.name, None)
        job.awaited.silent.pop(node.name, None)
        turn.mark_job(job.id, moved=True)


def forget_among_peers(turn: Turn, node: NodeRecord) -> None:
    """Wait for no answer about it or by it, and for no word that it hears a peer again."""
    rounds.end(turn, node)
    for silent in node.liveness.questions:
        waiting = turn.state.nodes[silent].liveness.confirmation
        if waiting is not None and node.name in waiting.asked:
            waiting.asked.remove(node.name)
            turn.mark_node(silent)
    for other in turn.state.nodes.values():
        if other.pair.partner_of == node.name:
            other.pair.partner_of = ""
        if node.name in other.liveness.silence.watchers:
            other.liveness.silence.watchers.remove(node.name)
        other.liveness.silence.unheard.pop(node.name, None)
        if node.name in other.liveness.silent_to:
            other.liveness.silent_to.remove(node.name)
            indexing.note_hearing(turn, other)
            turn.mark_node(other.name)


def _forget_record(turn: Turn, node: NodeRecord) -> None:
    state = turn.state
    state.index.forget(node.name)
    forget_away(state, node.name)
    keep_listed(state.pair_wanted, node.name, listed=False)
    for kind in TIMERS:
        turn.drop_timer(f"{kind}/{node.name}")
    drop_injections(turn, node)
    for key in [key for key in state.rejected_records if key.startswith(f"{node.name}/")]:
        turn.drop_timer(f"{TimerKind.REJECTED}/{key}")
        del state.rejected_records[key]
    for key in [key for key in state.refused_agents if key.startswith(f"{node.name}/")]:
        del state.refused_agents[key]
    state.paused.pop(node.name, None)
    state.outboxes.pop(node.spec.outbox, None)
    agent_identity.note_former(state, node)
    devices = len(node.spec.inventory.accelerators)
    add_days(state.removed_days, node.days, devices, turn.now_ns)
    del state.nodes[node.name]


def drop_injections(turn: Turn, node: NodeRecord) -> None:
    """Wait no more for the time after which injections are forgotten."""
    for injection in node.injections.by_id:
        turn.drop_timer(f"{TimerKind.INJECTION}/{injection}")


HANDLERS: Handlers = {
    events.NodeRemoved: node_removed,
}
