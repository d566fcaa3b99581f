"""Orders to nodes, derived from the state alone, so that a restart derives the same ones again."""

from collections.abc import Iterator

from everstep_controller.core import check_orders, end_orders, probation, waiting
from everstep_controller.core.actions import (
    Action,
    ChooseRecoveryStep,
    ClearInjection,
    ConfirmSilence,
    Inject,
    Isolate,
    RefuseLauncher,
    Release,
    SetTimer,
    StartGeneration,
    StopGeneration,
)
from everstep_controller.core.facts import BranchPoint, InjectionState
from everstep_controller.core.hold_orders import hold
from everstep_controller.core.job_lifecycle import ACTIVE
from everstep_controller.core.state import (
    AUTOMATION,
    MAINTENANCE,
    OPERATOR,
    Injection,
    JobRecord,
    JobState,
    NodeRecord,
    State,
)


def outstanding(state: State) -> Iterator[Action]:
    """Yield everything that the state still calls for."""
    for timer, at_ns in state.timers.items():
        yield SetTimer(id=f"timer/{timer}/{at_ns}", timer=timer, at_ns=at_ns)
    for node in state.nodes.values():
        yield from claims_on(node)
        yield from for_node(state, node)
    for job in state.jobs.values():
        if job.state is JobState.REPLANNING or waiting.for_its_state(job):
            yield choose_step(state, job)


def for_node(state: State, node: NodeRecord) -> Iterator[Action]:
    """Yield what a node should be told now, also after it has been away."""
    yield from check_orders.unanswered(node)
    for silent in state.nodes.values():
        waiting = silent.confirmation
        if waiting and node.name in waiting.asked and node.name not in waiting.verdicts:
            yield confirm(silent, node.name)
    for injection in node.injections.values():
        yield from for_injection(node.name, injection)
    for job in state.jobs.values():
        yield from for_member(state, job, node.name)
    for key, reason in state.refusals.items():
        job_name, _, node_name = key.rpartition("@")
        if node_name == node.name:
            yield refuse(job_name, node_name, reason)


def for_injection(node: str, injection: Injection) -> Iterator[Action]:
    """Yield what a node has not answered yet of an injection."""
    if injection.clearing and not injection.over:
        yield ClearInjection(
            id=f"{injection.id}/clear",
            node=node,
            reason="its end was ordered",
            injection=injection.id,
        )
    elif injection.state is InjectionState.ORDERED:
        yield Inject(
            id=injection.id,
            node=node,
            reason=f"injected by {injection.operator}: {injection.reason or 'no reason given'}",
            spec=injection.spec,
            duration_ns=injection.duration_ns,
        )


def for_member(state: State, job: JobRecord, node: str) -> Iterator[Action]:
    """Yield what a node should be told now about one job."""
    if stale := _stale_generation(job, node):
        yield stop(state, job, node, stale)
    if node in job.successors:
        yield end_orders.wait_for_end(job, node)
    if job.state is JobState.ENDED:
        involved = node in job.launchers or node in job.holders
        yield from [end_orders.end(job, node)] if involved else []
        yield from [end_orders.forget(job, node)] if involved and job.forgotten_by else []
    elif node in job.members and job.state in (JobState.STOPPING, *ACTIVE):
        yield from _for_running(state, job, node)
    else:
        yield from _for_holder(state, job, node) if job.past else []
        yield from [hold(state, job, node)] if node in job.launchers else []


def _for_holder(state: State, job: JobRecord, node: str) -> Iterator[Action]:
    """Yield what a node should be told that may hold some of the state that a new job goes on from.

    One that was cut off when the job before it ended may still run its processes: until they are
    gone, nobody knows which step is its last.
    """
    last = job.holders.get(node)
    if last is None:
        return
    yield end_orders.keep(job, node)
    if last and not job.start_reason and node not in job.launchers:
        yield stop(state, job, node, last)


def _for_running(state: State, job: JobRecord, node: str) -> Iterator[Action]:
    """Yield what a member of a generation that runs, or should stop, has not confirmed yet."""
    if job.state is JobState.STOPPING and node not in job.stopped:
        yield stop(state, job, node, job.generation)
    if job.state in ACTIVE and node not in job.phases:
        yield start(job, node)


def _stale_generation(job: JobRecord, node: str) -> int:
    """Return the generation whose processes must go before the node takes new ranks, or 0."""
    return job.launchers[node].stale_generation if node in job.launchers else 0


def claims_on(node: NodeRecord) -> Iterator[Action]:
    """Yield what the isolation drivers should know of a node."""
    for claim in node.claims:
        yield isolate(node.name, claim.owner, claim.reason)
    for owner in (AUTOMATION, OPERATOR, MAINTENANCE):
        if node.claim_of(owner) is None:
            yield release(node.name, owner, f"no claim of {owner}")


def isolate(node: str, owner: str, reason: str) -> Isolate:
    """Return the action that makes a claim known."""
    return Isolate(id=f"{node}/isolate/{owner}", node=node, reason=reason, owner=owner)


def release(node: str, owner: str, reason: str) -> Release:
    """Return the action that makes the end of a claim known."""
    return Release(id=f"{node}/release/{owner}", node=node, reason=reason, owner=owner)


def confirm(silent: NodeRecord, node: str) -> ConfirmSilence:
    """Return the question to a node about a silent peer."""
    return ConfirmSilence(
        id=silent.confirmation.id if silent.confirmation else "",
        node=node,
        reason=f"{silent.name} is silent",
        peer=silent.name,
        peer_address=silent.liveness_address,
    )


def refuse(job: str, node: str, reason: str) -> RefuseLauncher:
    """Return the order to turn a launcher away."""
    return RefuseLauncher(id=f"{job}/refuse/{node}", node=node, reason=reason, job=job)


def stop(state: State, job: JobRecord, node: str, generation: int) -> StopGeneration:
    """Return the order to stop a generation on a node."""
    return StopGeneration(
        id=f"{job.name}/g{generation}/stop/{node}",
        node=node,
        reason=job.reason,
        job=job.name,
        generation=generation,
        grace_ns=state.settings.stop_grace_ns,
    )


def starts(job: JobRecord) -> Iterator[StartGeneration]:
    """Yield the order to start the current generation on every member, in rank order."""
    for node_rank, member in enumerate(job.members):
        yield _start(job, member, node_rank)


def start(job: JobRecord, node: str) -> StartGeneration:
    """Return the order to start the current generation on a node."""
    return _start(job, node, job.members.index(node))


def _start(job: JobRecord, node: str, node_rank: int) -> StartGeneration:
    return StartGeneration(
        id=f"{job.name}/g{job.generation}/start/{node}",
        node=node,
        reason=job.start_reason,
        job=job.name,
        generation=job.generation,
        node_rank=node_rank,
        node_count=len(job.members),
        first_rank=node_rank * job.processes_per_node,
        processes=job.processes_per_node,
        world_size=job.world_size,
        master_address=job.master_address,
        master_port=job.master_port,
        restore_step=job.restore_step,
        stored=job.restore_stored,
        skipped=tuple(job.skipped),
        own_restarts=job.own_restarts,
        job_id=job.job_id,
        renew=job.renew,
    )


def choose_step(state: State, job: JobRecord) -> ChooseRecoveryStep:
    """Return the question to the catalogue."""
    alive = {name: last for name, last in job.holders.items() if not state.nodes[name].gone}
    newest = max(alive.values(), default=0)
    return ChooseRecoveryStep(
        id=f"{job.name}/g{job.generation}/choose",
        job=job.name,
        generation=job.generation,
        settled_generation=newest,
        holders=tuple(name for name, last in alive.items() if last == newest),
        others=tuple(name for name, last in alive.items() if last != newest),
        branch=tuple(job.branch),
        expected=has_state(job),
        reason=job.reason,
        stored=() if job.latest is None else (job.latest,),
        avoided=probation.avoided(job),
        foreign_generation=job.foreign_generation,
    )


def has_state(job: JobRecord) -> bool:
    """Return whether snapshots of the job were ever made."""
    return job.recoverable_step is not None or any(map(_snapshotted, job.branch))


def _snapshotted(point: BranchPoint) -> bool:
    return point.through_step is not None or bool(point.layouts or point.shards)
