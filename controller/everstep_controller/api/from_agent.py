"""What agents say, from the wire to the core's events and facts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from everstep_common.findings import FindingKey
from everstep_controller.api.inventory import inventory
from everstep_controller.api.names import name
from everstep_controller.api.vault_reports import data_ranges, stored_step
from everstep_controller.core import events
from everstep_controller.core.facts import (
    InjectionState,
    JobOnNode,
    Origin,
    Phase,
    Storage,
)
from everstep_controller.progress import Steps
from everstep_proto.convert import WireError, finding_from_wire, stamp_from_wire
from everstep_proto.generated import fleet_pb2

# A second of very short steps; more in one record is a broken agent.
_STEPS_MAX = 100_000
_TEXT_MAX = 4096

_PHASES = {
    fleet_pb2.PHASE_STARTED: Phase.STARTED,
    fleet_pb2.PHASE_ATTACHED: Phase.ATTACHED,
    fleet_pb2.PHASE_RESTORED: Phase.RESTORED,
}

_INJECTION_STATES = {
    fleet_pb2.INJECTION_STATE_ACTIVE: InjectionState.ACTIVE,
    fleet_pb2.INJECTION_STATE_REFUSED: InjectionState.REFUSED,
    fleet_pb2.INJECTION_STATE_ENDED: InjectionState.ENDED,
}


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Where a record comes from, and how its node's boot clock maps to controller time."""

    origin: Origin
    # (boot id, boot_ns) to controller time
    to_ns: Callable[[str, int], int]


def node_connected(hello: fleet_pb2.Hello) -> events.NodeConnected:
    """Return the event of a Hello. Raises WireError."""
    stamp = stamp_from_wire(hello.stamp)
    if not hello.outbox:
        raise WireError("Hello without the id of its outbox")
    return events.NodeConnected(
        node=name(hello.node, "node"),
        boot_id=stamp.boot_id,
        agent_version=hello.agent_version,
        outbox=hello.outbox,
        highest_term=hello.highest_term,
        host=hello.host,
        domain=hello.domain,
        bulk_address=hello.bulk_address,
        liveness_address=hello.liveness_address,
        inventory=inventory(hello.inventory),
        jobs=tuple(
            JobOnNode(name(job.job, "job"), job.generation, job.launcher, job.planned_generation)
            for job in hello.jobs
        ),
        open_findings=tuple(finding_from_wire(finding) for finding in hello.open_findings),
    )


def steps(record: fleet_pb2.Record, context: RecordContext) -> Steps:
    """Return the steps of a progress record. Raises WireError."""
    wire, boot_id = record.progress, record.stamp.boot_id
    if len(wire.end_boot_ns) != len(wire.stall_ns):
        raise WireError("progress with unequal numbers of steps and stalls")
    if len(wire.end_boot_ns) > _STEPS_MAX:
        raise WireError(f"progress of more than {_STEPS_MAX} steps in one record")
    if any(stall < 0 for stall in wire.stall_ns):
        raise WireError("progress with a negative stall")
    return Steps(
        job=name(wire.job, "job"),
        generation=wire.generation,
        first_step=wire.first_step,
        end_ns=tuple(context.to_ns(boot_id, end) for end in wire.end_boot_ns),
        stall_ns=tuple(wire.stall_ns),
        snapshots_skipped=wire.snapshots_skipped,
        origin=context.origin,
        of_job=wire.of_job,
    )


def event(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of any record but progress. Raises WireError."""
    kind = record.WhichOneof("body")
    convert = _CONVERTERS.get(kind or "")
    if convert is None:
        raise WireError(f"record {record.sequence} has no body that this version knows")
    stamp_from_wire(record.stamp)
    return convert(record, context)


def _happened(record: fleet_pb2.Record, context: RecordContext, boot_ns: int = 0) -> int:
    """Return when it happened; the stamp stands in where a body has no time of its own."""
    return context.to_ns(record.stamp.boot_id, boot_ns or record.stamp.boot_ns)


def _finding_raised(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.finding_raised
    since = wire.since if wire.HasField("since") else record.stamp
    at_ns = context.to_ns(since.boot_id, since.boot_ns)
    return events.FindingRaised(context.origin, finding_from_wire(wire), at_ns)


def _finding_cleared(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.finding_cleared
    key = FindingKey(wire.component, wire.condition)
    at_ns = _happened(record, context)
    return events.FindingCleared(context.origin, key, wire.evidence[:_TEXT_MAX], at_ns)


def _launcher_joined(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.launcher_joined
    if not 1 <= wire.nodes_min <= wire.nodes_max or not wire.processes_per_node:
        raise WireError(
            f"job {wire.job!r:.80} wants {wire.nodes_min}:{wire.nodes_max} nodes of "
            f"{wire.processes_per_node} processes"
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
        at_ns=_happened(record, context),
        storage=_storage(wire.storage) if wire.HasField("storage") else None,
        latest=stored_step(wire.latest) if wire.HasField("latest") else None,
        snapshot_every_min=wire.snapshot_every_min,
        snapshot_every_max=wire.snapshot_every_max,
        stored_generation=wire.stored_generation,
        fresh=wire.fresh,
        skipped=data_ranges(wire.skipped),
    )


def _storage(wire: fleet_pb2.Storage) -> Storage:
    if not wire.path or wire.every_ns < 0:
        raise WireError(f"storage {wire.path!r:.80} every {wire.every_ns} ns is no place and time")
    return Storage(wire.path[:_TEXT_MAX], wire.every_steps, wire.every_ns, wire.keep)


def _launcher_left(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.launcher_left
    at_ns = _happened(record, context)
    job = name(wire.job, "job")
    return events.LauncherLeft(context.origin, job, wire.reason[:_TEXT_MAX], wire.by_user, at_ns)


def _phase_reached(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.phase_reached
    phase = _PHASES.get(wire.phase)
    if phase is None:
        raise WireError(f"job {wire.job!r:.80}: unknown phase {wire.phase}")
    at_ns = _happened(record, context, wire.at_boot_ns)
    return events.PhaseReached(context.origin, name(wire.job, "job"), wire.generation, phase, at_ns)


def _rank_exited(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.rank_exited
    return events.RankExited(
        origin=context.origin,
        job=name(wire.job, "job"),
        generation=wire.generation,
        rank=wire.rank,
        exit_code=wire.exit_code,
        signal=wire.signal,
        last_line=wire.last_line[:_TEXT_MAX],
        at_ns=_happened(record, context, wire.at_boot_ns),
        kind=wire.kind[:_TEXT_MAX],
        exception=wire.exception[:_TEXT_MAX],
        core_dumped=wire.core_dumped,
        step=wire.step if wire.HasField("step") else None,
    )


def _rollback_asked(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.rollback_asked
    skip = (wire.skip.first, wire.skip.last) if wire.HasField("skip") else None
    if skip is not None and skip[0] > skip[1]:
        raise WireError(f"job {wire.job!r:.80}: data {skip[0]} to {skip[1]} is no range")
    return events.RollbackAsked(
        origin=context.origin,
        job=name(wire.job, "job"),
        generation=wire.generation,
        rank=wire.rank,
        step=wire.step,
        reason=wire.reason[:_TEXT_MAX],
        at_ns=_happened(record, context, wire.at_boot_ns),
        skip=skip,
    )


def _restarted_here(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
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
        decided_ns=_happened(record, context, wire.decided_boot_ns),
        at_ns=_happened(record, context, wire.at_boot_ns),
        reason=wire.reason[:_TEXT_MAX],
    )


def _generation_stopped(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.generation_stopped
    at_ns = _happened(record, context, wire.at_boot_ns)
    job = name(wire.job, "job")
    return events.GenerationStopped(context.origin, job, wire.generation, wire.free_port, at_ns)


def _generation_finished(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.generation_finished
    at_ns = _happened(record, context, wire.at_boot_ns)
    return events.GenerationFinished(context.origin, name(wire.job, "job"), wire.generation, at_ns)


def _check_finished(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.check_finished
    message = wire.message[:_TEXT_MAX]
    return events.CheckFinished(context.origin, wire.order_id, wire.passed, message)


def _injection_changed(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.injection_changed
    state = _INJECTION_STATES.get(wire.state)
    if state is None:
        raise WireError(f"injection {wire.injection!r:.80}: unknown state {wire.state}")
    message = wire.message[:_TEXT_MAX]
    return events.InjectionChanged(context.origin, wire.injection[:_TEXT_MAX], state, message)


_CONVERTERS: Mapping[str, Callable[[fleet_pb2.Record, RecordContext], events.Event]] = {
    "finding_raised": _finding_raised,
    "finding_cleared": _finding_cleared,
    "launcher_joined": _launcher_joined,
    "launcher_left": _launcher_left,
    "phase_reached": _phase_reached,
    "rank_exited": _rank_exited,
    "rollback_asked": _rollback_asked,
    "restarted_here": _restarted_here,
    "generation_stopped": _generation_stopped,
    "generation_finished": _generation_finished,
    "check_finished": _check_finished,
    "injection_changed": _injection_changed,
}
