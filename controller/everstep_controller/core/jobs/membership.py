"""Membership of a job: launchers, ranks and agents that come and go, and nodes that are lost."""

from collections.abc import Sequence
from dataclasses import replace

from everstep_common import reports
from everstep_common.endings import by_user_on
from everstep_common.failures import rank_exits
from everstep_common.reports import (
    GenerationStopped,
    JobOnNode,
    LauncherLeft,
    RankExited,
    RanksWithoutSnapshot,
)
from everstep_controller.core import events
from everstep_controller.core.events import NodeConnected, Reported
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.jobs import (
    adoption,
    identity,
    incidents,
    lost_jobs,
    orders,
    remembered_ends,
)
from everstep_controller.core.jobs.lifecycle import ACTIVE, STEPPING
from everstep_controller.core.model.incident import Death, add_death, is_full
from everstep_controller.core.model.job import Cause, JobFault, JobRecord, JobState
from everstep_controller.core.model.node import AUTOMATION, OPERATOR, NodeRecord, NodeState
from everstep_controller.core.model.state import (
    State,
    jobs_involving,
    jobs_of_node,
    note_node,
)
from everstep_controller.core.nodes import (
    agent_identity,
    budgets,
    evidence,
    machines,
    unanswered_orders,
)
from everstep_controller.core.nodes.agent_identity import HelloDecision
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn


def launcher_left(turn: Turn, event: Reported[LauncherLeft]) -> None:
    """A launcher and its processes are gone."""
    node = event.origin.node
    job = turn.state.job(event.job)
    turn.state.nodes[node].jobs.refusals.pop(job.name if job is not None else event.job, None)
    if job is not None and node not in job.launchers:
        # One that left before it was told its job's id may be of the job that waits for this one.
        job = identity.job_after(turn.state, job)
    if job is None or node not in job.launchers:
        return
    del job.launchers[node]
    turn.mark_job(job.id)
    if job.state is JobState.ENDED or job.after:
        return
    # A launcher that ends on a node in maintenance ends with the node; nobody means to end the job.
    meant = event.report.by_user and turn.state.nodes[node].state is not NodeState.MAINTENANCE
    if meant and orders.needs_launcher(job, node):
        job.ending.wanted = job.ending.wanted or by_user_on(node)
    if node in job.generation.phases:
        _processes_gone(job, node)
    # Without a phase reported, its agent may hear of this generation only now; it answers the order
    # to stop it.
    if node in job.generation.members:
        message = f"the launcher on {node} is gone: {event.report.reason}"
        cause = Cause.USER if meant else Cause.LAUNCHER
        incidents.record_fault(turn, job, JobFault(event.at_ns, cause, node, message))
    # A launcher that waited on the node waits no more.
    turn.mark_node(node)
    turn.mark_job(job.id, moved=True)


def _processes_gone(job: JobRecord, node: str) -> None:
    if node in job.generation.members:
        job.generation.stopped[node] = True
        job.generation.fenced.pop(node, None)


def rank_exited(turn: Turn, event: Reported[RankExited]) -> None:
    """A training process ended before its generation did."""
    job = turn.state.job(event.job)
    if job is not None:
        _record_exit(turn, job, event.origin.node, event.at_ns, event.report)


def ranks_exited(turn: Turn, event: events.RanksExited) -> None:
    """More training processes of one node ended; each is taken as if it had come alone."""
    job = turn.state.job(event.job)
    if job is None:
        return
    node, generation = event.origin.node, job.generation.number
    for one in event.exits:
        if one.report.generation != generation:
            continue
        at_ns, rank = min(zip(one.at_ns, one.ranks, strict=True))
        if is_full(job.recovery.deaths, one.report, at_ns, rank) and incidents.is_one_more(
            turn,
            job,
            _cause_of(one.report),
            node,
            (generation, rank_exits.waited_in_vain(one.report), at_ns, rank),
        ):
            continue  # and so are those of them that ended later
        for rank, at_ns in zip(one.ranks, one.at_ns, strict=True):
            _record_exit(turn, job, node, at_ns, replace(one.report, rank=rank))


def _record_exit(turn: Turn, job: JobRecord, node: str, at_ns: int, report: RankExited) -> None:
    if report.generation != job.generation.number:
        return
    step = job.lineage.last_step if report.step is None else report.step
    death = Death(node, at_ns, replace(report, step=step))
    add_death(job.recovery.deaths, death)
    fault = JobFault(at_ns, _cause_of(report), death.node, death.sentence(), death)
    incidents.record_fault(turn, job, fault)


def _cause_of(report: RankExited) -> Cause:
    return Cause.PROCESS if rank_exits.explains(report) else Cause.COLLECTIVE


def generation_stopped(turn: Turn, event: Reported[GenerationStopped]) -> None:
    """No process of a generation is left on a node."""
    report = event.report
    job = turn.state.job(event.job)
    node = event.origin.node
    if job is None:
        return
    launcher = job.launchers.get(node)
    if launcher is not None:
        launcher.free_port = report.free_port or launcher.free_port
        if report.generation >= launcher.stale_generation:
            launcher.stale_generation = 0
            if job.state is JobState.WAITING_STATE:  # for this, where the state was found since
                turn.set_timer(f"{TimerKind.RETRY}/{job.id}", 0)
    unanswered_orders.record_answer(
        turn, turn.state.nodes[node], f"it has stopped ranks of {job.name}"
    )
    if node not in job.generation.stopped:
        job.awaited.heard_ns = turn.now_ns
    incidents.keep_left_behind(turn, job, event)
    if report.generation == job.generation.number:
        _processes_gone(job, node)
        if job.generation.members == [node]:
            # Stopped is stopped: its agent begins nothing after that on its own.
            job.generation.own_restarts = 0


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Have whatever runs on a node move that is lost or claimed."""
    if not node.gone and (not node.isolation.claims or node.draining):
        return
    for job in jobs_of_node(turn.state, node):
        if job.state is JobState.ENDED:
            continue
        if node.gone:
            fence_member(job, node.name)
        if node.name in job.generation.members and not _is_told(turn.state, job, node):
            if _is_checked_anew(job, node):
                continue
            onset_ns, why = node.liveness.silent_since_ns or turn.now_ns, _why_unusable(node)
            if why[0] is Cause.FINDING:
                budgets.record_stop(turn, job)
            incidents.judge_fault(turn, job, JobFault(onset_ns, *why))


def _is_checked_anew(job: JobRecord, node: NodeRecord) -> bool:
    """Return whether a node is only claimed for having been silent, while its ranks went on."""
    alone = all(claim.owner == AUTOMATION and claim.dead for claim in node.isolation.claims)
    back = node.liveness.connected and node.state in (NodeState.VALIDATING, NodeState.PROBATION)
    return alone and back and job.state in STEPPING


def _is_told(state: State, job: JobRecord, node: NodeRecord) -> bool:
    """Return whether the generation ends already, and its incident says this of the node."""
    if job.state in ACTIVE or job.generation.cause is None:
        return False
    # A fault may have interrupted the incident of what was planned: both are of this generation.
    newest = incidents_of_job(state, job)[-2:]
    told = ((part.cause, part.node, part.message) for one in newest for part in one.parts)
    return _why_unusable(node) in told


def _why_unusable(node: NodeRecord) -> tuple[Cause, str, str]:
    """Return the cause of a fault, its node, and a sentence."""
    if node.state is NodeState.MAINTENANCE:
        return Cause.MAINTENANCE, node.name, f"{node.name} is in maintenance: {node.reason}"
    if node.gone:
        return Cause.NODE, node.name, f"{node.name} is lost: {node.reason}"
    owners = {claim.owner for claim in node.isolation.claims}
    cause = Cause.OPERATOR if OPERATOR in owners else Cause.FINDING
    return cause, node.name, f"{node.name} was isolated: {node.isolation.claims[-1].reason}"


def fence_member(job: JobRecord, node: str) -> None:
    """Count on nothing that a node without an agent may still run; it is stopped on its return."""
    if node in job.generation.fenced:
        return
    launcher = job.launchers.get(node)
    running = node in job.generation.members and node not in job.generation.stopped
    if launcher is not None and running:
        launcher.stale_generation = job.generation.number
    _processes_gone(job, node)
    if running:
        job.generation.fenced[node] = True


def node_back(turn: Turn, node: str, seen: Sequence[JobOnNode], silent_since_ns: int) -> None:
    """An agent connected: what it no longer knows of a job is gone."""
    agent_identity.note_generations(turn.state, seen)
    agent_identity.note_ranks(turn.state, node, seen)
    note_without_snapshot(turn.state.nodes[node], seen)
    for on_node in seen:
        job = _job_seen(turn.state, on_node)
        if agent_identity.is_awaited(turn.state, on_node):
            _take_up(turn, on_node)
        if job is not None and on_node.generation:
            _note_what_it_holds(turn, job, node, on_node.generation)
    for job in jobs_involving(turn.state, turn.state.nodes[node]):
        # A new agent may do what the one before it did not, and has its own time for that; not one
        # that comes anew again and again.
        if not turn.state.nodes[node].streams.flaps_since_ns:
            job.overdue.pop(node, None)
            job.awaited.silent.pop(node, None)
        if not any(_is_about(on_node, job) for on_node in seen):
            _note_what_is_gone(turn, job, node, silent_since_ns)


def _take_up(turn: Turn, on_node: JobOnNode) -> None:
    """Go on from the generation of a lost job that an agent tells of."""
    job = turn.state.jobs[on_node.job_id]
    if on_node.generation > job.generation.number:
        adopt_generation(turn, job, on_node.generation, on_node.world_size)
        job.lineage.root = on_node.lineage_id


def note_without_snapshot(node: NodeRecord, seen: Sequence[JobOnNode]) -> None:
    """Take an agent's word of which jobs no snapshot was ever made on its node.

    Once a controller has ordered the stop of a generation, a newer one may have begun elsewhere:
    then the word counts of who gave it before that.
    """
    told = {one.job_id: one.without_snapshot for one in seen if one.job_id}
    known = node.jobs.without_snapshot
    node.jobs.without_snapshot = {
        job_id: word
        for job_id, word in told.items()
        if word is not None and (not word.stop_ordered or _is_known(known.get(job_id), word))
    }


def _is_known(known: RanksWithoutSnapshot | None, word: RanksWithoutSnapshot) -> bool:
    return known is not None and known.generation == word.generation


def _job_seen(state: State, on_node: JobOnNode) -> JobRecord | None:
    """Return the job that an agent has something of: whose state it is, or who has launchers."""
    if not on_node.job_id:
        return state.job(on_node.job)
    return state.job_of_lineage(on_node.lineage_id) or state.jobs.get(on_node.job_id)


def _is_about(on_node: JobOnNode, job: JobRecord) -> bool:
    """Return whether an agent's word is, or where no id was told may be, about a job."""
    if not on_node.job_id:
        return on_node.job == job.name
    return on_node.job_id == job.id or on_node.lineage_id == job.lineage_id


def _note_what_it_holds(turn: Turn, job: JobRecord, node: str, generation: int) -> None:
    job.lineage.holders.setdefault(node, 0)
    note_node(turn.state, node, job)
    launcher = job.launchers.get(node)
    if launcher is not None and launcher.stale_generation:
        # While it was cut off, its agent may have restarted the job.
        newest = min(generation, job.generation.number)
        launcher.stale_generation = max(launcher.stale_generation, newest)


def _note_what_is_gone(turn: Turn, job: JobRecord, node: str, silent_since_ns: int) -> None:
    job.lineage.holders.pop(node, None)
    had_launcher = _forget_launcher(turn, job, node)
    turn.mark_job(job.id)
    if job.state is JobState.ENDED or remembered_ends.has_ended(turn.state, job):
        return
    if node in job.generation.members and (had_launcher or node not in job.generation.stopped):
        _processes_gone(job, node)
        message = f"{node} came back without its processes"
        incidents.record_fault(turn, job, JobFault(silent_since_ns, Cause.NODE, node, message))


def _forget_launcher(turn: Turn, job: JobRecord, node: str) -> bool:
    """Forget a launcher that is gone; return whether there was one."""
    if job.launchers.pop(node, None) is None:
        return False
    turn.mark_job(job.id, moved=True)
    return True


def adopt_generation(turn: Turn, job: JobRecord, generation: int, world_size: int = 0) -> None:
    """Continue a job from a generation that agents have seen; its processes are stopped first."""
    if generation <= job.generation.number or job.state is JobState.ENDED:
        return
    adoption.go_on_from(turn.state, job, generation, world_size)
    lost_jobs.stop_what_runs(turn.state, job)
    message = f"the journal was restored and had lost generation {generation}"
    incidents.record_fault(turn, job, JobFault(turn.now_ns, Cause.OPERATOR, "", message))


def node_connected(turn: Turn, event: NodeConnected) -> None:
    """Take an agent's Hello: its node, and what it still knows of jobs; unless it is a stranger."""
    state = turn.state
    found = agent_identity.judge_hello(state, event, turn.now_ns)
    if found.decision in (HelloDecision.REFUSED, HelloDecision.CONTENDS):
        agent_identity.turn_away(turn, event, found)
        return
    if found.decision is HelloDecision.HALTS:
        agent_identity.halt(turn, event, found.reason)
    if state.halted:
        agent_identity.note_seen(state, event)
    if event.knocks:
        return
    agent_identity.forget_refusal(turn, event)
    remembered_ends.note_ends(turn, event)
    if state.halted:
        return
    node = _node_of(turn, event)
    kept = () if evidence.has_rebooted(node, event) else event.jobs
    silent_since_ns = node.liveness.silent_since_ns or turn.now_ns
    if node.spec.outbox != event.outbox:
        agent_identity.note_former(state, node)
    evidence.record_hello(turn, node, event)
    node_back(turn, node.name, kept, silent_since_ns)
    state.orphaned += identity.orphaned_launchers(state, node.name, kept)
    turn.unsent.nodes.add(node.name)
    node.identity.welcomed_term = state.term
    remembered_ends.reconsider(turn)


def _node_of(turn: Turn, event: NodeConnected) -> NodeRecord:
    """Return the node of an agent: one that came with another name before, or a new one."""
    nodes = turn.state.nodes
    if (known := machines.known_as(turn.state, event)) is not None:
        machines.rename(turn, known, event.node)
    if event.node not in nodes:
        nodes[event.node] = NodeRecord(event.node, since_ns=turn.now_ns)
        budgets.mark_deferred(turn)  # of more nodes, more may be isolated
    return nodes[event.node]


HANDLERS: Handlers = {
    events.NodeConnected: node_connected,
    events.RanksExited: ranks_exited,
    reports.LauncherLeft: launcher_left,
    reports.RankExited: rank_exited,
    reports.GenerationStopped: generation_stopped,
}
