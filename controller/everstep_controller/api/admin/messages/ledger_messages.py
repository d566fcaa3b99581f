"""Ledger of a job as a message of the admin API, with what others would call its ratios."""

from collections.abc import Iterator, Mapping

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
from everstep_controller.core.accounting.ledger import DEFINITIONS, ettr_devices
from everstep_controller.core.accounting.reliability import stage_times
from everstep_controller.core.accounting.variants import Measured, published
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.jobs.restore_point import undecided_step
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.state import State
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2

_NS = 1e9


def ledger(state: State, job: JobRecord, now_ns: int) -> admin_pb2.Ledger:
    """Return where a job's time went."""
    found, totals = effectiveness_of(state, job, now_ns), job.ledger.totals(now_ns)
    stages = stage_times(list(recoveries(job.ledger, _counted(state, job), now_ns)))
    by_devices, degraded_ns = ettr_devices(job.ledger, job.spec.nodes_max, now_ns)
    return answer(
        admin_pb2.Ledger,
        found,
        job=job.name,
        categories=[
            admin_pb2.Category(name=category, time_ns=amount, meaning=category.meaning)
            for category, amount in totals.items()
        ],
        budget_per_failure_s=found.budget.per_failure_s,
        budget_burnt=found.budget.burnt,
        incidents=incident_messages(state, job, now_ns),
        steps=job.ledger.step_count,
        ettr_devices=by_devices,
        degraded_device_s=degraded_ns * job.spec.processes_per_node / _NS,
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
            for stage, told in stages.items()
        ],
    )


def _measured(
    state: State, job: JobRecord, totals: Mapping[Category, int], now_ns: int
) -> Measured:
    of_program = time_of_program(job.ledger, _counted(state, job), now_ns)
    saved = job.lineage.recoverable_step
    unsaved = [one for one in job.ledger.steps if saved is None or one.step > saved]
    return Measured(totals, of_program, sum(one.productive_ns for one in unsaved))


def _counted(state: State, job: JobRecord) -> Iterator[CountedIncident]:
    """Yield a job's incidents as accounting looks at them."""
    for incident in incidents_of_job(state, job):
        first = incident.deaths[0].exit.kind if incident.deaths else ""
        yield CountedIncident(incident.id, incident.cause, first, over=bool(incident.over_ns))
