"""Orders about jobs, derived from the state alone: a restart derives the same ones again."""

from collections.abc import Iterator, Sequence, Set

from everstep_common.job_ids import number_of_job
from everstep_controller.core.actions import (
    Action,
    EndJob,
    ForgetJob,
    HoldLauncher,
    KeepJob,
    RefuseLauncher,
    SetTimer,
    StartGeneration,
    StopGeneration,
)
from everstep_controller.core.jobs import lost_ends
from everstep_controller.core.jobs.lifecycle import ACTIVE, OVER
from everstep_controller.core.jobs.restore_point import choose_step
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import State, jobs_involving, jobs_of_node
from everstep_controller.core.nodes import isolation, lifecycle, quorum
from everstep_controller.core.nodes.claims import why_ineligible
from everstep_controller.core.nodes.injections import injection_orders
from everstep_controller.core.nodes.rounds import unanswered_questions
from everstep_controller.core.turn import Reconciliation, TimerKind

# Number of nodes that a sentence names.
_NAMED_MAX = 3

_WAITING = (
    JobState.FORMING,
    JobState.WAITING_CAPACITY,
    JobState.BACKING_OFF,
    JobState.WAITING_STATE,
)


def for_member(state: State, job: JobRecord, node: str) -> Iterator[Action]:
    """Yield what a node should be told now about one job."""
    if _is_spared(state, job, node):
        return
    if stale := _stale_generation(job, node):
        yield stop(state, job, node, stale)
    if job.state is JobState.ENDED:
        # Where another job has the name since, its launcher hears it when it says whose it is.
        waits = node in job.launchers and state.is_current(job)
        involved = waits or node in job.lineage.holders
        yield from [end(job, node)] if involved else []
        yield from [forget(job, node)] if involved and job.ending.forgotten_by else []
    elif node in job.generation.members and job.state in (JobState.STOPPING, *ACTIVE):
        yield from _for_running(state, job, node)
    else:
        yield from _for_holder(state, job, node) if job.lineage.continues else []
        yield from [hold(state, job, node)] if node in job.launchers else []


def withdrawal_pending(state: State, job: JobRecord) -> bool:
    """Return whether orders that would end a stopped generation are still held back."""
    return f"{TimerKind.WITHDRAW}/{job.id}" in state.timers


def _is_spared(state: State, job: JobRecord, node: str) -> bool:
    return withdrawal_pending(state, job) and node in job.generation.members


def _for_holder(state: State, job: JobRecord, node: str) -> Iterator[Action]:
    """Yield what a node should be told that may hold some of the state that a new job goes on from.

    One that was cut off when the job before it ended may still run its processes: until they are
    gone, nobody knows which step is its last.
    """
    last = job.lineage.holders.get(node)
    if last is None:
        return
    yield keep(job, node)
    if last and not job.lineage.started and node not in job.launchers:
        yield stop(state, job, node, last)


def _for_running(state: State, job: JobRecord, node: str) -> Iterator[Action]:
    """Yield what a member of a generation that runs, or should stop, has not answered yet."""
    if job.state is JobState.STOPPING and node not in job.generation.stopped:
        yield stop(state, job, node, job.generation.number)
    silent = node not in job.generation.phases or node in job.awaited.silent
    if job.state in ACTIVE and silent:
        yield start(job, node)


def _stale_generation(job: JobRecord, node: str) -> int:
    """Return the generation whose processes must go before the node takes new ranks, or 0."""
    return job.launchers[node].stale_generation if node in job.launchers else 0


def refuse(job: str, node: str, reason: str) -> RefuseLauncher:
    """Return the order to turn a launcher away."""
    return RefuseLauncher(id=f"{job}/refuse/{node}", node=node, reason=reason, job=job)


def stop(state: State, job: JobRecord, node: str, generation: int) -> StopGeneration:
    """Return the order to stop a generation on a node."""
    return StopGeneration(
        id=f"{job.id}/g{generation}/stop/{node}",
        node=node,
        reason=job.reason,
        job=job.name,
        job_id=job.id,
        lineage_id=job.lineage_id,
        generation=generation,
        grace_ns=state.settings.stop_grace_ns,
        look=needs_look(job, generation),
    )


def needs_look(job: JobRecord, generation: int) -> bool:
    """Return whether others than who died first ended a generation, as far as is known.

    They are those that ranks waited for until they gave up, or that called what did not fit.
    """
    deaths = [one for one in job.recovery.deaths if one.exit.generation == generation]
    # What explains more stands first.
    gave_up = bool(deaths) and deaths[0].waited_in_vain
    unfit = any(one.got_unfit_data for one in deaths)
    return gave_up or (unfit and not any(one.explains for one in deaths))


def starts(job: JobRecord) -> Iterator[StartGeneration]:
    """Yield the order to start the current generation on every member, in rank order."""
    for node_rank, member in enumerate(job.generation.members):
        yield _start(job, member, node_rank)


def start(job: JobRecord, node: str) -> StartGeneration:
    """Return the order to start the current generation on a node."""
    return _start(job, node, job.generation.members.place(node))


def _start(job: JobRecord, node: str, node_rank: int) -> StartGeneration:
    return StartGeneration(
        id=f"{job.id}/g{job.generation.number}/start/{node}",
        node=node,
        reason=job.generation.start_reason,
        job=job.name,
        generation=job.generation.number,
        node_rank=node_rank,
        node_count=len(job.generation.members),
        first_rank=node_rank * job.spec.processes_per_node,
        processes=job.spec.processes_per_node,
        world_size=job.world_size,
        master_address=job.generation.master_address,
        master_port=job.generation.master_port,
        restore_step=job.generation.restore_step,
        stored=job.generation.restore_stored,
        skipped=tuple(job.lineage.skipped),
        own_restarts=job.generation.own_restarts,
        job_id=job.id,
        lineage_id=job.lineage_id,
        renew=job.generation.renew,
    )


def end(job: JobRecord, node: str) -> EndJob:
    """Return the order to end a job on a node."""
    return EndJob(
        id=f"{job.id}/end/{node}",
        node=node,
        reason=job.reason,
        job=job.name,
        job_id=job.id,
        succeeded=job.ending.succeeded,
        unsaved=job.ending.unsaved,
        generation=job.generation.number,
    )


def orphan_end(state: State, name: str, node: str, job_id: str) -> EndJob:
    """Return the order to end a launcher of a job that ended while it was away."""
    ended, lost = state.jobs.get(job_id), lost_ends.end_of(state, name, job_id)
    how, succeeded, unsaved, generation = "how, is not known any more", False, False, 0
    if ended is not None:
        how, succeeded, unsaved = ended.reason, ended.ending.succeeded, ended.ending.unsaved
        generation = ended.generation.number
    elif lost is not None and lost.told is not None:
        why = lost.told.reason or "why, is not known"
        how = f"{why}, as the agent of {lost.told_by} remembers: the journal had lost that"
        succeeded, unsaved = lost.told.succeeded, lost.told.unsaved
        generation = lost.told.generation
    since = f"; another job has the name {name} since, see 'everstep job {name}'"
    since *= _has_next(state, name, job_id)
    return EndJob(
        id=f"{job_id}/late/{node}",
        node=node,
        reason=f"it ended while this launcher was away ({how}){since}",
        job=name,
        succeeded=succeeded,
        unsaved=unsaved,
        job_id=job_id,
        generation=generation,
    )


def _has_next(state: State, name: str, job_id: str) -> bool:
    """Return whether a job of the name has begun after another one."""
    newest, number = state.names.get(name, job_id), number_of_job(job_id, name)
    return newest != job_id and (number_of_job(newest, name) or 0) > (number or 0)


def forget(job: JobRecord, node: str) -> ForgetJob:
    """Return the order to drop what a node keeps of a job that has ended."""
    return ForgetJob(
        id=f"{job.id}/g{job.generation.number}/forget/{node}",
        node=node,
        reason=f"forgotten by {job.ending.forgotten_by or 'a new job of its name'}",
        job=job.name,
        job_id=job.id,
        lineage_id=job.lineage_id,
    )


def keep(job: JobRecord, node: str) -> KeepJob:
    """Return the order to keep what a node has of the job whose state this one goes on from."""
    return KeepJob(
        id=f"{job.id}/g{job.generation.number}/keep/{node}",
        node=node,
        reason=f"the next job of the name {job.name} goes on from it",
        job=job.name,
        job_id=job.id,
        lineage_id=job.lineage_id,
    )


def what_lasts(job: JobRecord) -> str:
    """Return what a job that is ending still waits for."""
    running = [
        name
        for name in job.generation.members
        if name not in job.generation.stopped and name in job.generation.phases
    ]
    if job.state is JobState.CLOSING and (job.ending.done or not running):
        return "its last step is being brought to storage"
    if not running:
        return "it is ending"
    whose = "its" if len(running) == 1 else "their"
    return f"{who_have(running)} still to stop {whose} processes"


def who_have(names: Sequence[str]) -> str:
    """Return a sentence's beginning: who has, or have, something."""
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return f"{', '.join(names[:_NAMED_MAX])}{more} {'has' if len(names) == 1 else 'have'}"


def needs_launcher(job: JobRecord, node: str) -> bool:
    """Return whether a job is to end where its user ends the launcher on a node."""
    return job.state is JobState.FORMING or node in job.generation.members


def hold(state: State, job: JobRecord, node: str) -> HoldLauncher:
    """Return the order to let a launcher wait."""
    runs = job.state in ACTIVE or job.state is JobState.STOPPING
    reason = job.reason
    if runs:
        reason = f"waiting as a spare of {job.name} (another job would need another --job name)"
    known = state.nodes.get(node)
    if known is not None and job.state not in OVER:
        kept = why_ineligible(state, known)
        without = f"; {job.name} goes on without it" if kept and runs else ""
        reason = f"{kept}{without}" or reason
    return HoldLauncher(
        id=f"{job.id}/hold/{node}/{job.state.value}",
        node=node,
        reason=reason,
        job=job.name,
        job_id=job.id,
        lineage_id=job.lineage_id,
        spare=job.state not in OVER and not needs_launcher(job, node),
    )


def hold_all(turn: Reconciliation, job: JobRecord) -> None:
    """Let every launcher of a job wait."""
    for node, launcher in job.launchers.items():
        launcher.kept = why_ineligible(turn.state, turn.state.nodes[node])
        turn.order(hold(turn.state, job, node))


def hold_where_eligibility_changed(turn: Reconciliation, nodes: Set[str]) -> None:
    """Tell the launchers that wait on a node when it ceases to take ranks, or takes some again."""
    for name in sorted(nodes & turn.state.nodes.keys()):
        node = turn.state.nodes[name]
        if not node.liveness.connected:
            continue
        for job in jobs_of_node(turn.state, node):
            launcher = job.launchers.get(name)
            if launcher is None or not _waits(job, name) or _is_spared(turn.state, job, name):
                continue
            kept = why_ineligible(turn.state, node)
            if kept != launcher.kept:
                launcher.kept = kept
                turn.order(hold(turn.state, job, name))


def _waits(job: JobRecord, node: str) -> bool:
    return job.state in _WAITING or (
        job.state is not JobState.ENDED and node not in job.generation.members
    )


def outstanding(state: State) -> Iterator[Action]:
    """Yield everything that the state still calls for."""
    for timer, at_ns in state.timers.items():
        yield SetTimer(id=f"timer/{timer}/{at_ns}", timer=timer, at_ns=at_ns)
    yield from isolation.outstanding_calls(state)
    yield from quorum.unanswered_calls(state)
    for node in state.nodes.values():
        yield from for_node(state, node)
    for job in state.jobs.values():
        if job.state in (JobState.REPLANNING, JobState.WAITING_STATE):
            yield choose_step(state, job)


def for_node(state: State, node: NodeRecord) -> Iterator[Action]:
    """Yield what a node should be told now, also after it has been away."""
    yield from lifecycle.unanswered_checks(node)
    yield from unanswered_questions(state, node)
    yield from lifecycle.unanswered_pair_tests(state, node)
    for injection in node.injections.by_id.values():
        yield from injection_orders(node.name, injection)
    for job in jobs_involving(state, node):
        yield from for_member(state, job, node.name)
    for job_name, reason in node.jobs.refusals.items():
        yield refuse(job_name, node.name, reason)
