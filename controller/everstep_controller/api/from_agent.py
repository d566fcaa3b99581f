"""What agents say, from the wire to the core's events and facts."""

from collections.abc import Callable, Mapping

from everstep_common.findings import FindingKey
from everstep_controller.api import job_records
from everstep_controller.api.inventory import inventory
from everstep_controller.api.names import is_name, name
from everstep_controller.api.record_context import TEXT_MAX, RecordContext, happened
from everstep_controller.core import events
from everstep_controller.core.model.facts import InjectionState, JobOnNode
from everstep_controller.progress import Steps
from everstep_controller.rejections import Rejection
from everstep_proto.convert import WireError, finding_from_wire, stamp_from_wire
from everstep_proto.generated import fleet_pb2

# A second of very short steps; more in one record is a broken agent.
_STEPS_MAX = 100_000

_INJECTION_STATES = {
    fleet_pb2.INJECTION_STATE_ACTIVE: InjectionState.ACTIVE,
    fleet_pb2.INJECTION_STATE_REFUSED: InjectionState.REFUSED,
    fleet_pb2.INJECTION_STATE_ENDED: InjectionState.ENDED,
}


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
            JobOnNode(
                name(job.job, "job"),
                job.generation,
                job.launcher,
                job.planned_generation,
                job.job_id,
            )
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


def rejection(node: str, message: fleet_pb2.AgentMessage, error: WireError) -> Rejection:
    """Return what is kept of a message that cannot be used: its kind, its job, what is wrong."""
    of: fleet_pb2.Record | fleet_pb2.AgentMessage = message
    if message.HasField("record"):
        of = message.record
    kind: str = of.WhichOneof("body") or ("message" if of is message else "record")
    job = getattr(getattr(of, kind, None), "job", "")
    return Rejection(node, kind, job if is_name(job) else "", str(error))


def event(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    """Return the event of any record but progress. Raises WireError."""
    kind = record.WhichOneof("body")
    convert = _CONVERTERS.get(kind or "")
    if convert is None:
        raise WireError(f"record {record.sequence} has no body that this version knows")
    stamp_from_wire(record.stamp)
    return convert(record, context)


def _finding_raised(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.finding_raised
    since = wire.since if wire.HasField("since") else record.stamp
    at_ns = context.to_ns(since.boot_id, since.boot_ns)
    return events.FindingRaised(context.origin, finding_from_wire(wire), at_ns)


def _finding_cleared(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.finding_cleared
    key = FindingKey(wire.component, wire.condition)
    at_ns = happened(record, context)
    return events.FindingCleared(context.origin, key, wire.evidence[:TEXT_MAX], at_ns)


def _check_finished(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.check_finished
    message = wire.message[:TEXT_MAX]
    return events.CheckFinished(context.origin, wire.order_id, wire.passed, message)


def _injection_changed(record: fleet_pb2.Record, context: RecordContext) -> events.Event:
    wire = record.injection_changed
    state = _INJECTION_STATES.get(wire.state)
    if state is None:
        raise WireError(f"injection {wire.injection!r:.80}: unknown state {wire.state}")
    message = wire.message[:TEXT_MAX]
    return events.InjectionChanged(context.origin, wire.injection[:TEXT_MAX], state, message)


_CONVERTERS: Mapping[str, Callable[[fleet_pb2.Record, RecordContext], events.Event]] = {
    "finding_raised": _finding_raised,
    "finding_cleared": _finding_cleared,
    "launcher_joined": job_records.launcher_joined,
    "launcher_left": job_records.launcher_left,
    "phase_reached": job_records.phase_reached,
    "rank_exited": job_records.rank_exited,
    "rollback_asked": job_records.rollback_asked,
    "restarted_here": job_records.restarted_here,
    "generation_stopped": job_records.generation_stopped,
    "generation_finished": job_records.generation_finished,
    "check_finished": _check_finished,
    "injection_changed": _injection_changed,
}
