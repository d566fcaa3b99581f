"""Conversion of plans and reports: between the controller's, the launcher's and stored forms."""

from dataclasses import replace

from google.protobuf.message import DecodeError

from everstep_agent.jobs.state.facts import JobFacts
from everstep_agent.jobs.state.plan import NO_PLAN, Plan
from everstep_agent.storage.formats.records import LatestPointer
from everstep_agent.storage.worker.messages import StepListing
from everstep_common import launcher_messages, rank_messages, reports
from everstep_common.orders import StartGeneration
from everstep_proto.generated import fleet_pb2
from everstep_proto.orders import order_from_wire, order_to_wire
from everstep_proto.reports import record_of

_ABANDONED_MAX = 64
_DEVICES_MAX = 64


def plan_from_bytes(encoded: bytes) -> Plan:
    """Return a plan as it was kept. Raises ValueError."""
    if not encoded:
        return NO_PLAN
    try:
        plan = order_from_wire(fleet_pb2.Order.FromString(encoded))
    except DecodeError as error:
        raise ValueError(f"the plan is not one: {error}") from error
    if not isinstance(plan, StartGeneration):
        raise ValueError(f"the plan is not one: a {type(plan).__name__}")
    return plan


def plan_to_bytes(plan: Plan) -> bytes:
    """Return a plan as it is kept."""
    return order_to_wire(plan, term=0).SerializeToString() if plan.generation else b""


def start_message(plan: Plan, reason: str) -> launcher_messages.Start:
    """Return what a launcher must know of a plan."""
    return launcher_messages.Start(
        generation=plan.generation,
        node_rank=plan.node_rank,
        node_count=plan.node_count,
        first_rank=plan.first_rank,
        processes=plan.processes,
        world_size=plan.world_size,
        master_address=plan.master_address,
        master_port=plan.master_port,
        restore_step=plan.restore_step,
        reason=reason,
        renew=plan.renew,
    )


def skipped_message(plan: Plan) -> rank_messages.Skipped:
    """Return the data that a generation leaves out, as its ranks hear it."""
    return rank_messages.Skipped(plan.skipped)


def joined_record(
    request: launcher_messages.Join, facts: JobFacts, seen: StepListing | None = None
) -> fleet_pb2.Record:
    """Return the record of a launcher that joined; ``seen`` is in its storage."""
    found = seen.latest if seen else None
    if seen and found is None and request.continues:
        found = seen.other
    report = reports.LauncherJoined(
        nodes_min=request.nodes_min,
        nodes_max=request.nodes_max,
        processes_per_node=request.processes_per_node,
        reform=request.reform,
        restarts_max=request.restarts_max,
        free_port=facts.place.free_port,
        running_generation=request.running_generation,
        storage=request.storage,
        snapshot_every_min=request.snapshot_every_min,
        snapshot_every_max=request.snapshot_every_max,
        fresh=request.fresh,
        job_id=request.job_id or facts.job_id,
        replica_nodes=request.replica_nodes,
        program=request.program,
        queue=request.queue,
        account=request.account,
        token_sha256=facts.place.token_sha256,
        uid=facts.place.uid,
        stored_generation=seen.newest_generation if seen else 0,
        continues=request.continues,
        latest=_latest(found) if found else None,
        stored_branch=_branch(seen) if seen and found is seen.latest else (),
        stored_job=seen.origin.job_id if seen and seen.origin else "",
        stored_cluster=seen.origin.cluster if seen and seen.origin else "",
        stored_uid=seen.origin.uid if seen and seen.origin else None,
        stored_doubt=seen.doubt if seen else "",
        lineage_id=facts.lineage_id,
        skipped=facts.plan.skipped if request.running_generation else (),
    )
    return record_of(report, facts.job)


def _latest(latest: LatestPointer) -> reports.StoredStep | None:
    if latest.target is None:
        return None
    return reports.StoredStep(
        generation=latest.target.generation,
        step=latest.target.step,
        world_size=latest.world_size,
        manifest_hash=latest.manifest_hash,
        size_bytes=latest.size_bytes,
        skipped=latest.skipped,
    )


def _branch(seen: StepListing) -> tuple[reports.BranchStep, ...]:
    return tuple(reports.BranchStep(key.generation, key.step) for key in seen.branch)


def joined_again_record(
    request: launcher_messages.Join, facts: JobFacts, seen: StepListing | None = None
) -> fleet_pb2.Record:
    """Return the record of a launcher that joined before, with what it has been given since."""
    generation = facts.plan.generation
    running = generation if facts.active else 0
    again = replace(request, running_generation=running, job_id=facts.job_id)
    return joined_record(again, facts, seen)


def phase_record(facts: JobFacts, phase: reports.Phase, at_boot_ns: int) -> fleet_pb2.Record:
    """Return the record of a phase that all local ranks have reached."""
    return record_of(
        reports.PhaseReached(facts.plan.generation, phase, at_boot_ns), facts.reported_as
    )


def stopped_record(
    facts: JobFacts, generation: int, at_boot_ns: int, held_devices: tuple[str, ...] = ()
) -> fleet_pb2.Record:
    """Return the record of a generation that has no process left here but those held in the kernel.

    These are named as their launcher knows them.
    """
    report = reports.GenerationStopped(
        generation,
        facts.place.free_port,
        at_boot_ns,
        facts.processes.abandoned[:_ABANDONED_MAX],
        held_devices[:_DEVICES_MAX],
    )
    return record_of(report, facts.reported_as)


def restarted_record(
    plan: Plan, after: int, reason: str, at_boot_ns: tuple[int, int]
) -> fleet_pb2.Record:
    """Return the record of a generation that was begun here; when that was decided, and done."""
    report = reports.RestartedHere(
        after_generation=after,
        generation=plan.generation,
        restore_step=plan.restore_step,
        restore_generation=plan.restored_generation,
        decided_boot_ns=at_boot_ns[0],
        at_boot_ns=at_boot_ns[1],
        reason=reason,
    )
    return record_of(report, plan.job_id or plan.job)
