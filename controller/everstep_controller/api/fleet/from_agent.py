"""Messages of agents as events of the core: Hello, and the records of an outbox.

What a report may be is said by its record in `everstep_common.reports`; here it is told which job
it is about, and when it happened on the controller's timeline.
"""

import typing
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from everstep_common.hints import hints_of
from everstep_common.reports import (
    FindingCleared,
    FindingRaised,
    Hello,
    RanksStandStill,
    Report,
    StepsCompleted,
)
from everstep_common.stamp import Stamp
from everstep_controller.core import events
from everstep_controller.core.jobs.progress_rows import ReportedSteps
from everstep_controller.core.model.node import Origin
from everstep_controller.records.rejections import Rejection
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import WireError, from_wire
from everstep_proto.reports import is_about_a_job, is_job_name, job_of, report_of

# What the event of a Hello says just as the agent did.
_SAME = tuple(one.name for one in fields(events.NodeConnected) if one.name in hints_of(Hello))


@dataclass(frozen=True, slots=True)
class RecordContext:
    """Origin of a record, and the map from its node's boot clock to controller time."""

    origin: Origin
    # (boot id, boot_ns) to controller time
    to_ns: Callable[[str, int], int]
    # When something was seen, by the stamp of its record.
    seen_ns: Callable[[Stamp], int] = lambda _: 0


def node_connected(wire: fleet_pb2.Hello, now_ns: int) -> events.NodeConnected:
    """Return the event of a Hello that came now. Raises WireError."""
    hello = from_wire(Hello, wire)
    same: dict[str, Any] = {name: getattr(hello, name) for name in _SAME}
    since_ns = tuple(now_ns - _age_ns(one, hello.stamp) for one in hello.findings_since)
    return events.NodeConnected(boot_id=hello.stamp.boot_id, findings_since_ns=since_ns, **same)


def _age_ns(began: Stamp, now: Stamp) -> int:
    """Return how long ago something began on an agent's clock; in an earlier boot: since this."""
    return max(0, now.boot_ns - (began.boot_ns if began.boot_id == now.boot_id else 0))


def lineages_seen(hello: events.NodeConnected) -> list[str]:
    """Return the lineages that an agent holds something of; names where no id was told yet."""
    held = [seen for seen in hello.jobs if seen.lineage_id or seen.generation]
    return [seen.lineage_id or seen.job_id or seen.job for seen in held]


def reported(record: fleet_pb2.Record, context: RecordContext) -> events.Event | ReportedSteps:
    """Return the event of a record, or the steps that wait for others. Raises WireError."""
    report = report_of(record)
    job = job_of(record) if is_about_a_job(report) else ""
    stamp = from_wire(Stamp, record.stamp)
    if isinstance(report, StepsCompleted):
        return _steps(report, job, stamp, context)
    at_ns = _happened_ns(report, stamp, context)
    found = isinstance(report, FindingRaised | FindingCleared)
    seen_ns = context.seen_ns(stamp) if found else 0
    told = events.Reported(context.origin, at_ns, report, job, seen_ns)
    return typing.cast("events.Event", told)


def _happened_ns(report: Report, stamp: Stamp, context: RecordContext) -> int:
    """Return when it happened; the stamp stands in where a report has no time of its own."""
    if isinstance(report, FindingRaised) and report.since is not None:
        return context.to_ns(report.since.boot_id, report.since.boot_ns)
    if isinstance(report, RanksStandStill):
        return context.to_ns(stamp.boot_id, report.since_boot_ns)
    boot_ns: int = getattr(report, "at_boot_ns", 0)
    return context.to_ns(stamp.boot_id, boot_ns or stamp.boot_ns)


def _steps(report: StepsCompleted, job: str, stamp: Stamp, context: RecordContext) -> ReportedSteps:
    return ReportedSteps(
        job=job,
        generation=report.generation,
        first_step=report.first_step,
        end_ns=tuple(context.to_ns(stamp.boot_id, end) for end in report.end_boot_ns),
        stall_ns=report.stall_ns,
        snapshots_skipped=report.snapshots_skipped,
        origin=context.origin,
        of_job=report.of_job,
        pauses=report.pauses,
    )


def rejection(
    node: str,
    message: fleet_pb2.AgentMessage,
    error: WireError,
    user_of: Callable[[str], str],
) -> Rejection:
    """Return what is kept of a message that cannot be used: kind, job, user, and what is wrong.

    ``user_of`` returns the user of a job, for an agent that does not say it.
    """
    of: fleet_pb2.Record | fleet_pb2.AgentMessage = message
    if message.HasField("record"):
        of = message.record
    kind: str = of.WhichOneof("body") or ("message" if of is message else "record")
    job = (
        of.job if isinstance(of, fleet_pb2.Record) else getattr(getattr(of, kind, None), "job", "")
    )
    told = job if is_job_name(job) else ""
    return Rejection(node, kind, told, str(error), _user(of) or user_of(told))


def _user(of: fleet_pb2.Record | fleet_pb2.AgentMessage) -> str:
    """Return the user of a record's job as its agent says it; "" where it does not."""
    if not isinstance(of, fleet_pb2.Record):
        return ""
    if of.HasField("launcher_joined"):
        return str(of.launcher_joined.uid)
    return str(of.uid) if of.HasField("uid") else ""
