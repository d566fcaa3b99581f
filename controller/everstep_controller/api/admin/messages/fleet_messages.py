"""Nodes, jobs, findings and incidents of the core as messages of the admin API."""

from collections import Counter
from collections.abc import Iterable, Mapping

from everstep_common.judging.findings import Finding, Mode, Severity
from everstep_common.reports import Accelerator, KernelMessage
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.ledger import (
    Effectiveness,
    effectiveness,
)
from everstep_controller.core.fleet.incidents import failures_of_job, incidents_of_job
from everstep_controller.core.jobs import unsaved
from everstep_controller.core.jobs.restore_point import undecided_step
from everstep_controller.core.model.incident import Death, Incident
from everstep_controller.core.model.job import JobIncident, JobRecord, JobState
from everstep_controller.core.model.node import NodeRecord, OpenFinding
from everstep_controller.core.model.slowness import SlowPart
from everstep_controller.core.model.state import CONTROLLER, State
from everstep_controller.core.nodes import claims
from everstep_controller.core.planned import forecast
from everstep_controller.core.planned.forecast import window_sentences
from everstep_controller.core.planned.slow_evidence import SlowEvidence, evidence_of
from everstep_controller.core.planned.swaps import slow_parts, swap_plan
from everstep_controller.core.recovery.planning import candidates
from everstep_controller.telemetry.clock_map import ClockEstimate
from everstep_controller.telemetry.kernel_messages import kernel_line
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2

# A job of thousands of nodes may have the same finding on each: these tell what it is.
_FINDINGS_MAX = 100
_WORST_FIRST = {Severity.FATAL: 0, Severity.DEGRADED: 1, Severity.INFO: 2}
# Fields of an incident that only those of jobs have.
_NOT_OF_A_JOB: Mapping[str, object] = dict.fromkeys(
    (
        "plan",
        "step_before",
        "step_restored",
        "has_restored",
        "costs",
        "node_costs",
        "verdict",
        "deaths",
        "left_behind",
        "step_resumed",
    )
)


def troubling(node: NodeRecord) -> list[OpenFinding]:
    """Return the findings of a node that are more than information."""
    held = node.health.findings.values()
    return [one for one in held if one.finding.severity is not Severity.INFO]


def node_summary(
    node: NodeRecord, jobs: Iterable[str], maintenance: str, groups: Iterable[str] = ()
) -> admin_pb2.NodeSummary:
    """Return a node in a line; ``maintenance`` says which window it has, if any."""
    return answer(
        admin_pb2.NodeSummary,
        node,
        node.liveness,
        node.spec,
        node.spec.inventory,
        node=node.name,
        claims=[answer(admin_pb2.Claim, claim) for claim in node.isolation.claims],
        jobs=jobs,
        findings=len(troubling(node)),
        accelerators=_accelerators(node),
        maintenance=maintenance,
        no_spare=claims.no_spare(node),
        doubt=node.liveness.silence.doubt,
        doubted_ns=node.liveness.silence.doubted_ns if node.doubtful else 0,
        groups=groups,
    )


def _accelerators(node: NodeRecord) -> str:
    names = Counter(accelerator.name for accelerator in node.spec.inventory.accelerators)
    return ", ".join(f"{count} x {name}" for name, count in sorted(names.items())) or "none"


def node_detail(
    state: State,
    node: NodeRecord,
    clock: ClockEstimate | None,
    kernel: Iterable[KernelMessage],
    schedulers: Iterable[admin_pb2.SchedulerView] = (),
) -> admin_pb2.NodeDetail:
    """Return everything known of a node; ``schedulers``: as each of them has it."""
    inventory, held = node.spec.inventory, worst_first(node.health.findings.values())
    return answer(
        admin_pb2.NodeDetail,
        node.spec,
        inventory,
        summary=node_summary(
            node,
            _jobs_there(state, node),
            window_sentences(state).get(node.name, ""),
            state.index.groups_of(node.name),
        ),
        disks=[answer(admin_pb2.DiskLine, disk) for disk in inventory.disks],
        interfaces=[answer(admin_pb2.InterfaceLine, link) for link in inventory.interfaces],
        accelerators=map(_accelerator, inventory.accelerators),
        findings=[finding_line(state, node.name, one) for one in held],
        clock_offset_ns=clock.offset_ns if clock else 0,
        clock_uncertainty_ns=clock.uncertainty_ns if clock else 0,
        kernel_messages=map(kernel_line, kernel),
        swap_plan=swap_plan(state, node),
        schedulers=schedulers,
    )


def _jobs_there(state: State, node: NodeRecord) -> list[str]:
    return sorted(
        job.name
        for job in state.jobs.values()
        if node.name in job.generation.members and job.state is not JobState.ENDED
    )


def _accelerator(device: Accelerator) -> admin_pb2.AcceleratorLine:
    nearest = " ".join([*device.nearest_interfaces, device.nearest_distance]).strip()
    return answer(admin_pb2.AcceleratorLine, device, nearest=nearest)


def worst_first(findings: Iterable[OpenFinding]) -> list[OpenFinding]:
    """Return findings in the order in which to look at them."""
    return sorted(findings, key=lambda held: (_WORST_FIRST[held.finding.severity], held.since_ns))


def finding_line(state: State, node: str, held: OpenFinding) -> admin_pb2.FindingLine:
    """Return a finding as shown."""
    finding = held.finding
    mode = _mode_of(state, node, finding)
    return answer(admin_pb2.FindingLine, held, finding, node=node, mode=mode)


def _mode_of(state: State, node: str, finding: Finding) -> Mode:
    """Return how far automation may go for a finding of a node, or of the controller."""
    known = state.nodes.get(node)
    if known is None:
        return state.settings.mode_of(finding.condition, finding.mode)
    return state.mode_of(known, finding.condition, finding.mode)


def job_summary(state: State, job: JobRecord, now_ns: int) -> admin_pb2.JobSummary:
    """Return a job in a line."""
    return answer(
        admin_pb2.JobSummary,
        job,
        job=job.name,
        generation=job.generation.number,
        step=job.lineage.completed_step or 0,
        has_step=job.lineage.completed_step is not None,
        members=job.generation.members,
        spares=[
            node.name for node in candidates(state, job) if node.name not in job.generation.members
        ],
        ettr_time=effectiveness_of(state, job, now_ns).ettr_time,
        uid=job.spec.uid,
        undecided_step=undecided_step(job),
    )


def job_detail(state: State, job: JobRecord, now_ns: int) -> admin_pb2.JobDetail:
    """Return everything known of a job."""
    return admin_pb2.JobDetail(
        summary=job_summary(state, job, now_ns),
        nodes_min=job.spec.nodes_min,
        nodes_max=job.spec.nodes_max,
        processes_per_node=job.spec.processes_per_node,
        recoverable_step=job.lineage.recoverable_step or 0,
        has_recoverable=job.lineage.recoverable_step is not None,
        restarts=job.recovery.restarts,
        incidents=incident_messages(state, job, now_ns),
        begun=job.lineage.begun,
        continues=job.lineage.continues.job_id if job.lineage.continues else "",
        planned=planned_line(state, job),
        kept_out=claims.waiting_launchers(state, job),
        findings=_findings_about(state, job),
        hang=hang_line(job),
        slow=[slow_line(state, job, part) for part in slow_parts(job)],
        slow_plan=job.slow.plan if slow_parts(job) else "",
        swap_plans=_swap_plans(state, job),
    )


def _swap_plans(state: State, job: JobRecord) -> list[str]:
    """Return what is done about the nodes of a job on which a failure is foretold."""
    names = sorted(set(state.index.precursors).intersection(job.generation.members))
    return [plan for name in names if (plan := swap_plan(state, state.nodes[name]))]


def slow_line(state: State, job: JobRecord, part: SlowPart) -> admin_pb2.SlowLine:
    """Return a rank or place that makes the others of its job wait."""
    node = state.nodes.get(part.node)
    found = SlowEvidence() if node is None else evidence_of(state, node, job, part)
    return answer(admin_pb2.SlowLine, part, first_step=part.since_step, evidence=found.found)


def hang_line(job: JobRecord) -> admin_pb2.HangLine | None:
    """Return who holds a job back that stands still; None while nobody has looked."""
    seen = job.hang.seen
    if seen is None:
        return None
    return answer(
        admin_pb2.HangLine,
        seen.verdict,
        seen,
        job.hang,
        culprits=[answer(admin_pb2.HangCulprit, one) for one in seen.verdict.culprits],
        chain=map(str, seen.verdict.chain),
    )


def _findings_about(state: State, job: JobRecord) -> list[admin_pb2.FindingLine]:
    """Return what nodes have found that a job's user mends, and that its steps are not saved."""
    if not state.is_current(job):
        return []  # they are known by the name, which another job has by now
    nodes = dict.fromkeys([*job.generation.members, *job.launchers])
    held = [
        (name, one)
        for name in nodes
        if name in state.nodes
        for one in state.nodes[name].health.findings.values()
        if one.finding.key.job == job.name
    ]
    held += [(CONTROLLER, one) for one in unsaved.findings_of_job(state, job)]
    order = {id(one): place for place, one in enumerate(worst_first(one for _, one in held))}
    held.sort(key=lambda pair: order[id(pair[1])])
    return [finding_line(state, name, one) for name, one in held[:_FINDINGS_MAX]]


def effectiveness_of(state: State, job: JobRecord, now_ns: int) -> Effectiveness:
    """Return the ratios of a job so far."""
    return effectiveness(job.ledger, failures_of_job(state, job), now_ns)


def newest_incident(
    state: State, subject: NodeRecord | JobRecord, now_ns: int
) -> admin_pb2.Incident | None:
    """Return the newest incident of a job that had one."""
    if isinstance(subject, NodeRecord) or not subject.recovery.incidents:
        return None
    return _incident(subject, incidents_of_job(state, subject)[-1], now_ns)


def fleet_incident(state: State, incident: Incident, now_ns: int) -> admin_pb2.Incident:
    """Return an incident as shown, with what its kind adds."""
    job = state.jobs.get(incident.subjects[0])
    if job is not None and isinstance(incident, JobIncident):
        return _incident(job, incident, now_ns)
    return _shown_incident(incident, _NOT_OF_A_JOB)


def incident_messages(state: State, job: JobRecord, now_ns: int) -> list[admin_pb2.Incident]:
    """Return the incidents of a job as shown, oldest first."""
    return [_incident(job, incident, now_ns) for incident in incidents_of_job(state, job)]


def _incident(job: JobRecord, incident: JobIncident, now_ns: int) -> admin_pb2.Incident:
    of_a_job: dict[str, object] = {
        "has_restored": incident.step_restored is not None,
        "costs": _costs(job.ledger.totals(now_ns, incident.id)),
        "node_costs": _costs(job.ledger.node_totals(now_ns, incident.id)),
        "deaths": map(death_to_admin, incident.deaths),
    }
    return _shown_incident(incident, of_a_job)


def _costs(totals: Mapping[Category, int]) -> list[admin_pb2.Category]:
    return [admin_pb2.Category(name=name, time_ns=amount) for name, amount in totals.items()]


def _shown_incident(incident: Incident, of_its_kind: Mapping[str, object]) -> admin_pb2.Incident:
    parts = [answer(admin_pb2.IncidentPart, part) for part in incident.parts]
    return answer(admin_pb2.Incident, incident, incident=incident.id, parts=parts, **of_its_kind)


def death_to_admin(death: Death) -> admin_pb2.RankDeath:
    """Return one death."""
    said = death.exit.exception or death.exit.last_line
    return answer(admin_pb2.RankDeath, death.exit, death, said=said)


def planned_line(state: State, job: JobRecord) -> admin_pb2.PlannedLine | None:
    """Return what is still to come of planned work on a job; None for nothing."""
    wish = forecast.pending(state, job)
    if wish is None:
        return None
    return answer(
        admin_pb2.PlannedLine,
        wish,
        waits=forecast.waits_for(state, job, wish),
        undo=forecast.undo(state, job, wish),
    )
