"""Records: what a launcher said, as the controller journals it; plans, as a launcher hears them."""

from collections.abc import Iterator
from dataclasses import fields, replace

from google.protobuf.message import DecodeError

from everstep_agent.jobs.facts import JobFacts
from everstep_agent.jobs.plan import Plan, PlannedSource, StoredState
from everstep_agent.storage.formats.records import LatestPointer
from everstep_agent.storage.publisher import ranges_from_wire, ranges_to_wire
from everstep_agent.storage.worker.messages import StepListing
from everstep_common import trainer_messages as messages
from everstep_proto.generated import fleet_pb2

_PATH_MAX = 4096
_KEEP_MAX = 10_000
_KIND_MAX = 40
_ABANDONED_MAX = 64
_PROGRAM_MAX = 200
# A century: whoever wants less often than that wants never.
_LONG_S = 3e9
# Fields of a plan that are the same value on the wire.
_SAME = tuple(one.name for one in fields(Plan) if one.name not in ("sources", "stored", "skipped"))
_SAME_OF_SOURCE = tuple(one.name for one in fields(PlannedSource))
_SAME_OF_STORED = tuple(one.name for one in fields(StoredState) if one.name != "skipped")


def plan_from_bytes(encoded: bytes) -> Plan:
    """Return a plan as it was kept. Raises ValueError."""
    try:
        return plan_from_wire(fleet_pb2.StartGeneration.FromString(encoded))
    except DecodeError as error:
        raise ValueError(f"the plan is not one: {error}") from error


def plan_from_wire(plan: fleet_pb2.StartGeneration) -> Plan:
    """Return a plan as the controller sent it."""
    stored = plan.stored
    return Plan(
        **{name: getattr(plan, name) for name in _SAME},
        sources=tuple(
            PlannedSource(**{name: getattr(one, name) for name in _SAME_OF_SOURCE})
            for one in plan.sources
        ),
        stored=StoredState(
            **{name: getattr(stored, name) for name in _SAME_OF_STORED},
            skipped=ranges_from_wire(stored.skipped),
        )
        if plan.HasField("stored")
        else None,
        skipped=ranges_from_wire(plan.skipped),
    )


def plan_to_wire(plan: Plan) -> fleet_pb2.StartGeneration:
    """Return a plan as it is kept, and as the vault reads it."""
    stored = plan.stored
    return fleet_pb2.StartGeneration(
        **{name: getattr(plan, name) for name in _SAME},
        sources=[
            fleet_pb2.ShardSource(**{name: getattr(one, name) for name in _SAME_OF_SOURCE})
            for one in plan.sources
        ],
        stored=fleet_pb2.StoredStep(
            **{name: getattr(stored, name) for name in _SAME_OF_STORED},
            skipped=ranges_to_wire(stored.skipped),
        )
        if stored is not None
        else None,
        skipped=ranges_to_wire(plan.skipped),
    )


def start_message(plan: Plan, reason: str) -> messages.Start:
    """Return what a launcher must know of a plan."""
    return messages.Start(
        generation=plan.generation,
        node_rank=plan.node_rank,
        node_count=plan.node_count,
        first_rank=plan.first_rank,
        processes=plan.processes,
        world_size=plan.world_size,
        master_address=plan.master_address,
        master_port=plan.master_port,
        restore_step=plan.restore_step if plan.restore else None,
        reason=reason,
    )


def start_messages(plan: Plan, reason: str, request: messages.Join | None) -> Iterator[object]:
    """Yield what a launcher is told so that it starts; one of an older version takes only Start."""
    if plan.renew and request is not None and request.learns:
        yield messages.Renew()
    yield start_message(plan, reason)


def skipped_message(plan: Plan) -> messages.Skipped:
    """Return the data that a generation leaves out, as its ranks hear it."""
    return messages.Skipped(plan.skipped)


def joined_record(
    request: messages.Join, facts: JobFacts, seen: StepListing | None = None
) -> fleet_pb2.Record:
    """Return the record of a launcher that joined; ``seen`` is in its storage."""
    body = fleet_pb2.LauncherJoined(
        job=facts.job,
        token_sha256=facts.place.token_sha256,
        uid=facts.place.uid,
        nodes_min=request.nodes_min,
        nodes_max=request.nodes_max,
        processes_per_node=request.processes_per_node,
        reform=request.reform,
        restarts_max=request.restarts_max,
        free_port=facts.place.free_port,
        running_generation=request.running_generation,
        snapshot_every_min=max(0, request.snapshot_every_min),
        snapshot_every_max=max(0, request.snapshot_every_max),
        storage=_storage(request.storage) if request.storage else None,
        latest=_latest(seen.latest) if seen and seen.latest else None,
        stored_generation=seen.newest_generation if seen else 0,
        fresh=request.fresh,
        skipped=ranges_to_wire(facts.plan.skipped) if request.running_generation else (),
        job_id=facts.job_id,
        replica_nodes=request.replica_nodes,
        program=request.program[:_PROGRAM_MAX],
    )
    return fleet_pb2.Record(launcher_joined=body)


def _storage(storage: messages.Storage) -> fleet_pb2.Storage:
    return fleet_pb2.Storage(
        path=storage.path[:_PATH_MAX],
        every_steps=max(0, storage.every_steps),
        # A launcher may say infinity, or that it is no number: max() and min() end both.
        every_ns=int(min(_LONG_S, max(0.0, storage.every_s)) * 1e9),
        keep=min(_KEEP_MAX, max(2, storage.keep)),
    )


def _latest(latest: LatestPointer) -> fleet_pb2.StoredStep | None:
    if latest.target is None:
        return None
    return fleet_pb2.StoredStep(
        generation=latest.target.generation,
        step=latest.target.step,
        world_size=latest.world_size,
        manifest_hash=latest.manifest_hash,
        size_bytes=latest.size_bytes,
        skipped=ranges_to_wire(latest.skipped),
    )


def joined_again_record(
    request: messages.Join, facts: JobFacts, seen: StepListing | None = None
) -> fleet_pb2.Record:
    """Return the record of a launcher that joined before, with what it has been given since."""
    generation = facts.plan.generation
    running = generation if facts.active else 0
    return joined_record(replace(request, running_generation=running), facts, seen)


def phase_record(
    facts: JobFacts, phase: "fleet_pb2.Phase.ValueType", at_boot_ns: int
) -> fleet_pb2.Record:
    """Return the record of a phase that all local ranks have reached."""
    body = fleet_pb2.PhaseReached(
        job=facts.job, generation=facts.plan.generation, phase=phase, at_boot_ns=at_boot_ns
    )
    return fleet_pb2.Record(phase_reached=body)


def stopped_record(facts: JobFacts, generation: int, at_boot_ns: int) -> fleet_pb2.Record:
    """Return the record of a generation that has no process left here but those held in the kernel.

    These are named as their launcher knows them.
    """
    body = fleet_pb2.GenerationStopped(
        job=facts.job,
        generation=generation,
        at_boot_ns=at_boot_ns,
        free_port=facts.place.free_port,
        abandoned=facts.processes.abandoned[:_ABANDONED_MAX],
    )
    return fleet_pb2.Record(generation_stopped=body)


def restarted_record(
    plan: Plan, after: int, reason: str, at_boot_ns: tuple[int, int]
) -> fleet_pb2.Record:
    """Return the record of a generation that was begun here; when that was decided, and done."""
    body = fleet_pb2.RestartedHere(
        job=plan.job,
        after_generation=after,
        generation=plan.generation,
        restore=plan.restore,
        restore_step=plan.restore_step,
        restore_generation=plan.restored_generation,
        decided_boot_ns=at_boot_ns[0],
        at_boot_ns=at_boot_ns[1],
        reason=reason,
    )
    return fleet_pb2.Record(restarted_here=body)


def finished_record(facts: JobFacts, message: messages.Finished) -> fleet_pb2.Record:
    """Return the record of a generation whose local ranks all ended well."""
    body = fleet_pb2.GenerationFinished(
        job=facts.job, generation=message.generation, at_boot_ns=message.at_boot_ns
    )
    return fleet_pb2.Record(generation_finished=body)


def left_record(facts: JobFacts, reason: str, *, by_user: bool) -> fleet_pb2.Record:
    """Return the record of a launcher that is gone."""
    body = fleet_pb2.LauncherLeft(job=facts.job, reason=reason, by_user=by_user)
    return fleet_pb2.Record(launcher_left=body)


def exited_record(
    facts: JobFacts, message: messages.Exited, step: int | None = None
) -> fleet_pb2.Record:
    """Return the record of a process that ended before its generation, ``step`` its last."""
    body = fleet_pb2.RankExited(
        job=facts.job,
        generation=message.generation,
        rank=message.rank,
        exit_code=message.exit_code,
        signal=message.signal,
        at_boot_ns=message.at_boot_ns,
        last_line=message.last_line[:500],
        kind=message.kind[:_KIND_MAX],
        core_file=message.core_file[:_PATH_MAX],
        exception=message.exception[:500],
        core_dumped=message.core_dumped,
        step=step,
    )
    return fleet_pb2.Record(rank_exited=body)


def rollback_record(
    facts: JobFacts, generation: int, rank: int, message: messages.Rollback
) -> fleet_pb2.Record:
    """Return the record of a rank that says that a step is bad."""
    skip = message.skip
    body = fleet_pb2.RollbackAsked(
        job=facts.job,
        generation=generation,
        rank=rank,
        step=message.step,
        reason=message.reason[:500],
        at_boot_ns=message.at_boot_ns,
        skip=None if skip is None else fleet_pb2.DataRange(first=skip.first, last=skip.last),
    )
    return fleet_pb2.Record(rollback_asked=body)
