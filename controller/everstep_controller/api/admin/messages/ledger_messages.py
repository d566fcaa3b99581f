"""Ledger of a job as a message of the admin API, with what others would call its ratios."""

from collections.abc import Iterator, Mapping, Sequence

from everstep_controller.api.admin.messages.fleet_messages import (
    effectiveness_of,
    incident_messages,
)
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.incident_costs import (
    CountedIncident,
    recoveries,
    time_of_program,
)
from everstep_controller.core.accounting.ledger import DEFINITIONS, device_totals, ettr_devices
from everstep_controller.core.accounting.reliability import (
    DAY_S,
    expected_ettr,
    failure_rate,
    stage_times,
)
from everstep_controller.core.accounting.variants import Measured, published
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.jobs.restore_point import undecided_step
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.state import State
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2

_NS = 1e9
# The worst hour is looked for in the newest day.
_HOURS = 24
_RECOMPUTED = Category.LOST_RECOMPUTE.value


def ledger(state: State, job: JobRecord, now_ns: int) -> admin_pb2.Ledger:
    """Return where a job's time went."""
    found, totals = effectiveness_of(state, job, now_ns), job.ledger.totals(now_ns)
    recovered = list(recoveries(job.ledger, _counted(state, job), now_ns))
    rate = failure_rate(found.failures, _node_days(job, now_ns))
    devices = device_totals(job.ledger, job.spec.nodes_max, job.spec.processes_per_node, now_ns)
    return answer(
        admin_pb2.Ledger,
        found,
        job=job.name,
        categories=_categories(totals),
        devices=_categories(devices),
        budget_per_failure_s=found.budget.per_failure_s,
        budget_burnt=found.budget.burnt,
        incidents=incident_messages(state, job, now_ns),
        steps=job.ledger.step_count,
        ettr_devices=ettr_devices(devices),
        degraded_device_s=devices.get(Category.DEGRADED, 0) / _NS,
        failures_per_1000_node_days=rate.per_1000_node_days,
        failures_per_1000_node_days_low=rate.low,
        failures_per_1000_node_days_high=rate.high,
        expected_ettr=_expected_ettr(job, found.failures, recovered, now_ns),
        definitions=DEFINITIONS,
        undecided_step=undecided_step(job),
        published=[
            answer(admin_pb2.PublishedRatio, one)
            for one in published(_measured(state, job, totals, now_ns))
        ],
        begin_ns=job.ledger.started_ns,
        mttf_s=found.wall_ns / _NS / found.failures if found.failures else 0,
        stages=[
            admin_pb2.StageTime(
                stage=stage, recoveries=told.count, p50_s=told.p50_s, p99_s=told.p99_s
            )
            for stage, told in stage_times(recovered).items()
        ],
    )


def _categories(totals: Mapping[Category, int]) -> list[admin_pb2.Category]:
    return [
        admin_pb2.Category(name=category, time_ns=amount, meaning=category.meaning)
        for category, amount in totals.items()
    ]


def _node_days(job: JobRecord, now_ns: int) -> float:
    return sum(job.ledger.node_totals(now_ns).values()) / _NS / DAY_S


def _expected_ettr(
    job: JobRecord, failures: int, recovered: Sequence[Mapping[str, float]], now_ns: int
) -> float:
    """Return the ratio that what was measured predicts; 0 before a failure and two snapshots.

    The interval is from one snapshot that held training up to the next, among the newest steps.
    """
    snapshots = [one for one in job.ledger.steps if one.stall_ns]
    if not (failures and recovered and len(snapshots) > 1):
        return 0.0
    apart_s = (snapshots[-1].end_ns - snapshots[0].end_ns) / (len(snapshots) - 1) / _NS
    stall_s = sum(one.stall_ns for one in snapshots) / len(snapshots) / _NS
    restart_s = sum(sum(one.values()) - one.get(_RECOMPUTED, 0.0) for one in recovered)
    mttf = job.ledger.wall_ns(now_ns) / _NS / failures
    work_s = max(apart_s - stall_s, 1e-9)
    return expected_ettr(mttf, restart_s / len(recovered), work_s, stall_s)


def _measured(
    state: State, job: JobRecord, totals: Mapping[Category, int], now_ns: int
) -> Measured:
    of_program = time_of_program(job.ledger, _counted(state, job), now_ns)
    saved = job.lineage.recoverable_step
    unsaved = [one for one in job.ledger.steps if saved is None or one.step > saved]
    hours = list(job.ledger.hourly_totals(now_ns))[-_HOURS:]
    return Measured(totals, of_program, sum(one.productive_ns for one in unsaved), hours)


def _counted(state: State, job: JobRecord) -> Iterator[CountedIncident]:
    """Yield a job's incidents as accounting looks at them."""
    for incident in incidents_of_job(state, job):
        first = incident.deaths[0].exit.kind if incident.deaths else ""
        yield CountedIncident(incident.id, incident.cause, first, over=bool(incident.over_ns))
