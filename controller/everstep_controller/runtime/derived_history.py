"""Rows of the history as the state tells them: hours of jobs, incidents, and days of nodes.

All are computed from the state alone, which keeps each for longer than it takes to write it down:
so a controller that was killed writes after its start what it could not, and nothing twice.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from everstep_common.judging.findings import Severity
from everstep_controller.core.accounting.ledger import failure_count
from everstep_controller.core.accounting.timeline import HourMark
from everstep_controller.core.fleet.incidents import (
    failures_ns_of_job,
    failures_of_job,
    incidents_of_job,
)
from everstep_controller.core.model.incident import Incident
from everstep_controller.core.model.job import JobIncident, JobRecord
from everstep_controller.core.model.node import NodeState
from everstep_controller.core.model.node_days import DAY_NS, FleetDay, NodeDay
from everstep_controller.core.model.state import State
from everstep_controller.journal.history_rows import (
    FleetDayTold,
    IncidentPartTold,
    IncidentTold,
    JobHour,
    NodeDayTold,
)

FLEET_KEY = "fleet"
_GOOD = {NodeState.HEALTHY.value}


def job_hours(
    state: State, job: JobRecord, now_ns: int, after_ns: int = 0
) -> Iterator[tuple[HourMark, JobHour]]:
    """Yield the newest hours of a job, the last of which is going on.

    Of those that do not change any more the ones until ``after_ns`` are left out.
    """
    failed_ns = failures_ns_of_job(state, job)
    older = failures_of_job(state, job) - len(failed_ns)
    for mark in job.ledger.hours(now_ns, after_ns):
        yield mark, _job_hour(job, mark, older + bisect_left(failed_ns, mark.until_ns))


def _job_hour(job: JobRecord, mark: HourMark, failures: int) -> JobHour:
    steady = all(mark.node_ns.get(one, 0) == ns * mark.nodes for one, ns in mark.totals.items())
    return JobHour(
        totals={category.value: ns for category, ns in mark.totals.items()},
        nodes=mark.nodes,
        node_ns={} if steady else {one.value: ns for one, ns in mark.node_ns.items()},
        devices_per_node=job.spec.processes_per_node,
        nodes_max=job.spec.nodes_max,
        failures=failures,
        name=job.name,
        queue=job.spec.queue,
        account=job.spec.account,
    )


def incident_told(state: State, job: JobRecord, incident: JobIncident, now_ns: int) -> IncidentTold:
    """Return what is known of an incident now."""
    costs = job.ledger.totals(now_ns, incident.id)
    node_costs = job.ledger.node_totals(now_ns, incident.id)
    newest = job.recovery.incidents[-1] == incident.id
    judged = job.recovery.judgements if newest else ()
    return IncidentTold(
        job=job.id,
        cause=incident.cause.value,
        message=incident.message,
        failure=failure_count([incident.cause]) > 0,
        over_ns=incident.over_ns,
        name=job.name,
        queue=job.spec.queue,
        account=job.spec.account,
        node=incident.node,
        device=_device(state, incident),
        generation=incident.generation,
        members=incident.members,
        costs={one.value: ns for one, ns in costs.items()},
        node_costs={one.value: ns for one, ns in node_costs.items()},
        devices_per_node=job.spec.processes_per_node,
        plan=incident.plan.value if incident.plan is not None else "",
        step_before=incident.step_before,
        step_restored=incident.step_restored,
        step_resumed=incident.step_resumed,
        verdict=incident.verdict,
        parts=tuple(
            IncidentPartTold(part.at_ns, part.cause, part.node, part.message)
            for part in incident.parts
        ),
        deaths=tuple(death.sentence() for death in incident.deaths),
        evidence=tuple(line for one in judged for line in (one.sentence, *one.evidence)),
    )


def _device(state: State, incident: Incident) -> str:
    """Return the component of the first fatal finding of its node, or of the first one."""
    node = state.nodes.get(incident.node)
    if node is None or incident.over_ns:
        return ""
    found = [held for held in node.health.findings.values() if held.counts_against_node]
    fatal = [held for held in found if held.finding.severity is Severity.FATAL]
    first = min(fatal or found, key=lambda held: held.since_ns, default=None)
    return first.finding.component if first is not None else ""


# --- days of nodes -------------------------------------------------------------------------------


@dataclass(slots=True)
class _Lost:
    """Work that incidents have cost for which one node is blamed, on one day."""

    incidents: int = 0
    lost_ns: int = 0
    lost_node_ns: int = 0


def node_days(
    state: State, now_ns: int, from_ns: int
) -> Iterator[tuple[str, int, NodeDayTold | FleetDayTold]]:
    """Yield by node and begin the days from one on, and those of all nodes together.

    A node that was healthy all day, without a finding, has no day of its own. Of one that has been
    removed its time until then is in those of all nodes.
    """
    lost = _lost_by_day(state, now_ns, from_ns)
    removed = (day for day in state.removed_days if day.begin_ns + DAY_NS > from_ns)
    fleet = {day.begin_ns: day.copy() for day in removed}
    for name, node in list(state.nodes.items()):
        for day in node.days.until(now_ns, from_ns):
            devices = len(node.spec.inventory.accelerators)
            fleet.setdefault(day.begin_ns, FleetDay(day.begin_ns)).add(day, devices)
            cost = lost.get((name, day.begin_ns), _Lost())
            if day.spent_ns.keys() <= _GOOD and not (
                day.findings or day.isolated_ns or cost.incidents
            ):
                continue
            yield name, day.begin_ns, _node_day(day, cost)
    for begin_ns, one in fleet.items():
        told = FleetDayTold(one.nodes, one.spent_ns, one.isolated_ns, one.devices)
        yield FLEET_KEY, begin_ns, told


def _node_day(day: NodeDay, cost: _Lost) -> NodeDayTold:
    return NodeDayTold(
        day.spent_ns,
        day.isolated_ns,
        day.findings,
        cost.incidents,
        cost.lost_ns,
        cost.lost_node_ns,
    )


def _lost_by_day(state: State, now_ns: int, from_ns: int) -> dict[tuple[str, int], _Lost]:
    found: dict[tuple[str, int], _Lost] = defaultdict(_Lost)
    for job in state.jobs.values():
        for incident in incidents_of_job(state, job):
            if not incident.node or incident.onset_ns < from_ns:
                continue
            one = found[incident.node, incident.onset_ns // DAY_NS * DAY_NS]
            one.incidents += 1
            one.lost_ns += sum(job.ledger.totals(now_ns, incident.id).values())
            one.lost_node_ns += sum(job.ledger.node_totals(now_ns, incident.id).values())
    return found
