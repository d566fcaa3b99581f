"""What launchers and ranks say through their agents, from the wire to the core's events."""

from everstep_common import job_limits
from everstep_controller.api.names import name
from everstep_controller.api.record_context import TEXT_MAX, RecordContext, happened
from everstep_controller.api.vault_reports import data_ranges, stored_step
from everstep_controller.core import events
from everstep_controller.core.model.facts import Phase
from everstep_controller.core.model.lineage import StorageSpec
from everstep_proto.convert import WireError
from everstep_proto.generated import fleet_pb2

_PHASES = {
    fleet_pb2.PHASE_STARTED: Phase.STARTED,
    fleet_pb2.PHASE_ATTACHED: Phase.ATTACHED,
    fleet_pb2.PHASE_RESTORED: Phase.RESTORED,
}

# Words for people.
_PROGRAM_MAX = 200


def launcher_joined(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of a launcher that asks to take part in a job. Raises WireError."""
    wire = record.launcher_joined
    _refuse(
        wire.job,
        job_limits.size_problem(
            wire.nodes_min, wire.nodes_max, wire.processes_per_node, wire.replica_nodes
        ),
    )
    return events.LauncherJoined(
        origin=context.origin,
        job=name(wire.job, "job"),
        uid=wire.uid,
        token_sha256=wire.token_sha256,
        nodes_min=wire.nodes_min,
        nodes_max=wire.nodes_max,
        processes_per_node=wire.processes_per_node,
        reform=wire.reform,
        restarts_max=wire.restarts_max,
        free_port=wire.free_port,
        running_generation=wire.running_generation,
        at_ns=happened(record, context),
        storage=_storage(wire) if wire.HasField("storage") else None,
        latest=stored_step(wire.latest) if wire.HasField("latest") else None,
        snapshot_every_min=wire.snapshot_every_min,
        snapshot_every_max=wire.snapshot_every_max,
        stored_generation=wire.stored_generation,
        fresh=wire.fresh,
        skipped=data_ranges(wire.skipped),
        job_id=wire.job_id,
        replica_nodes=wire.replica_nodes or 1,
        program=wire.program[:_PROGRAM_MAX],
    )


def _refuse(job: str, problem: str | None) -> None:
    if problem is not None:
        raise WireError(f"job {job!r:.80}: {problem}")


def _storage(joined: fleet_pb2.LauncherJoined) -> StorageSpec:
    wire = joined.storage
    _refuse(joined.job, job_limits.storage_problem(wire.path))
    if wire.every_ns < 0:
        raise WireError(f"job {joined.job!r:.80}: stored every {wire.every_ns} ns")
    return StorageSpec(wire.path[:TEXT_MAX], wire.every_steps, wire.every_ns, wire.keep)


def launcher_left(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of a launcher that is gone. Raises WireError."""
    wire = record.launcher_left
    at_ns = happened(record, context)
    job = name(wire.job, "job")
    return events.LauncherLeft(context.origin, job, wire.reason[:TEXT_MAX], wire.by_user, at_ns)


def phase_reached(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of a phase that all ranks of a node have reached. Raises WireError."""
    wire = record.phase_reached
    phase = _PHASES.get(wire.phase)
    if phase is None:
        raise WireError(f"job {wire.job!r:.80}: unknown phase {wire.phase}")
    at_ns = happened(record, context, wire.at_boot_ns)
    return events.PhaseReached(context.origin, name(wire.job, "job"), wire.generation, phase, at_ns)


def rank_exited(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of a process that ended before its generation did. Raises WireError."""
    wire = record.rank_exited
    return events.RankExited(
        origin=context.origin,
        job=name(wire.job, "job"),
        generation=wire.generation,
        rank=wire.rank,
        exit_code=wire.exit_code,
        signal=wire.signal,
        last_line=wire.last_line[:TEXT_MAX],
        at_ns=happened(record, context, wire.at_boot_ns),
        kind=wire.kind[:TEXT_MAX],
        exception=wire.exception[:TEXT_MAX],
        core_dumped=wire.core_dumped,
        step=wire.step if wire.HasField("step") else None,
        core_file=wire.core_file[:TEXT_MAX],
    )


def rollback_asked(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of a rank that says its state is bad. Raises WireError."""
    wire = record.rollback_asked
    skip = (wire.skip.first, wire.skip.last) if wire.HasField("skip") else None
    if skip is not None:
        _refuse(wire.job, job_limits.range_problem(*skip))
    return events.RollbackAsked(
        origin=context.origin,
        job=name(wire.job, "job"),
        generation=wire.generation,
        rank=wire.rank,
        step=wire.step,
        reason=wire.reason[:TEXT_MAX],
        at_ns=happened(record, context, wire.at_boot_ns),
        skip=skip,
    )


def restarted_here(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of a generation that an agent began itself. Raises WireError."""
    wire = record.restarted_here
    if wire.generation <= wire.after_generation:
        raise WireError(
            f"job {wire.job!r:.80}: generation {wire.generation} cannot follow "
            f"{wire.after_generation}"
        )
    return events.RestartedHere(
        origin=context.origin,
        job=name(wire.job, "job"),
        after_generation=wire.after_generation,
        generation=wire.generation,
        step=wire.restore_step if wire.restore else None,
        step_generation=wire.restore_generation if wire.restore else 0,
        decided_ns=happened(record, context, wire.decided_boot_ns),
        at_ns=happened(record, context, wire.at_boot_ns),
        reason=wire.reason[:TEXT_MAX],
    )


def generation_stopped(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of a generation that is gone from a node. Raises WireError."""
    wire = record.generation_stopped
    at_ns = happened(record, context, wire.at_boot_ns)
    job = name(wire.job, "job")
    return events.GenerationStopped(
        context.origin, job, wire.generation, wire.free_port, at_ns, tuple(wire.abandoned)
    )


def generation_finished(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of ranks of a node that have all ended well. Raises WireError."""
    wire = record.generation_finished
    at_ns = happened(record, context, wire.at_boot_ns)
    return events.GenerationFinished(context.origin, name(wire.job, "job"), wire.generation, at_ns)
