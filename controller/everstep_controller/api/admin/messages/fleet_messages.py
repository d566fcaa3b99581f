"""Nodes, jobs, findings and incidents of the core as messages of the admin API."""

from collections import Counter
from collections.abc import Iterable

from everstep_common.judging.findings import Severity
from everstep_common.reports import Accelerator, Disk, Interface, KernelMessage
from everstep_controller.core.accounting.ledger import (
    DEFINITIONS,
    Effectiveness,
    effectiveness,
)
from everstep_controller.core.fleet.incidents import failures_of_job, incidents_of_job
from everstep_controller.core.jobs import unsaved
from everstep_controller.core.jobs.restore_point import undecided_step
from everstep_controller.core.model.agents import RefusedAgent
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
from everstep_controller.journal.port import Announcement
from everstep_controller.telemetry.clock_map import ClockEstimate
from everstep_controller.telemetry.kernel_messages import kernel_line
from everstep_controller.webhooks.sender import WebhookStatus
from everstep_proto.generated import admin_pb2

# A job of thousands of nodes may have the same finding on each: these tell what it is.
_FINDINGS_MAX = 100
_WORST_FIRST = {Severity.FATAL: 0, Severity.DEGRADED: 1, Severity.INFO: 2}


def troubling(node: NodeRecord) -> list[OpenFinding]:
    """Return the findings of a node that are more than information."""
    held = node.health.findings.values()
    return [one for one in held if one.finding.severity is not Severity.INFO]


def node_summary(node: NodeRecord, jobs: Iterable[str], maintenance: str) -> admin_pb2.NodeSummary:
    """Return a node in a line; ``maintenance`` says which window it has, if any."""
    return admin_pb2.NodeSummary(
        node=node.name,
        state=node.state.value,
        claims=[
            admin_pb2.Claim(
                owner=claim.owner,
                reason=claim.reason,
                since_ns=claim.since_ns,
                draining=claim.draining,
            )
            for claim in node.isolation.claims
        ],
        connected=node.liveness.connected,
        jobs=jobs,
        findings=len(troubling(node)),
        cpu_count=node.spec.inventory.cpu_count,
        memory_bytes=node.spec.inventory.memory_bytes,
        accelerators=_accelerators(node),
        reason=node.reason,
        since_ns=node.since_ns,
        maintenance=maintenance,
        no_spare=claims.no_spare(node),
        doubt=node.liveness.silence.doubt,
        doubted_ns=node.liveness.silence.doubted_ns if node.doubtful else 0,
        domain=node.spec.domain,
    )


def refused_agent(refused: RefusedAgent) -> admin_pb2.RefusedAgent:
    """Return an agent that is not let in."""
    return admin_pb2.RefusedAgent(
        node=refused.node, reason=refused.reason, since_ns=refused.since_ns
    )


def _accelerators(node: NodeRecord) -> str:
    names = Counter(accelerator.name for accelerator in node.spec.inventory.accelerators)
    return ", ".join(f"{count} x {name}" for name, count in sorted(names.items())) or "none"


def node_detail(
    state: State,
    node: NodeRecord,
    clock: ClockEstimate | None,
    kernel: Iterable[KernelMessage],
) -> admin_pb2.NodeDetail:
    """Return everything known of a node."""
    inventory, held = node.spec.inventory, worst_first(node.health.findings.values())
    return admin_pb2.NodeDetail(
        summary=node_summary(
            node, _jobs_there(state, node), window_sentences(state).get(node.name, "")
        ),
        agent_version=node.spec.agent_version,
        boot_id=node.spec.boot_id,
        domain=node.spec.domain,
        kernel=inventory.kernel,
        cpu_model=inventory.cpu_model,
        disks=map(_disk, inventory.disks),
        interfaces=map(_interface, inventory.interfaces),
        accelerators=map(_accelerator, inventory.accelerators),
        notes=inventory.notes,
        findings=[finding_line(state, node.name, one) for one in held],
        clock_offset_ns=clock.offset_ns if clock else 0,
        clock_uncertainty_ns=clock.uncertainty_ns if clock else 0,
        kernel_messages=map(kernel_line, kernel),
        swap_plan=swap_plan(state, node),
    )


def _jobs_there(state: State, node: NodeRecord) -> list[str]:
    return sorted(
        job.name
        for job in state.jobs.values()
        if node.name in job.generation.members and job.state is not JobState.ENDED
    )


def _disk(disk: Disk) -> admin_pb2.DiskLine:
    return admin_pb2.DiskLine(
        device=disk.device,
        mount=disk.mount,
        filesystem=disk.filesystem,
        size_bytes=disk.size_bytes,
        free_bytes=disk.free_bytes,
    )


def _interface(link: Interface) -> admin_pb2.InterfaceLine:
    return admin_pb2.InterfaceLine(
        name=link.name,
        kind=link.kind,
        up=link.up,
        speed_bits_per_s=link.speed_bits_per_s,
        pci_address=link.pci_address,
        numa_node=link.numa_node,
        firmware=link.firmware,
    )


def _accelerator(device: Accelerator) -> admin_pb2.AcceleratorLine:
    return admin_pb2.AcceleratorLine(
        uuid=device.uuid,
        name=device.name,
        vendor=device.vendor,
        pci_address=device.pci_address,
        memory_bytes=device.memory_bytes,
        numa_node=device.numa_node,
        nearest=" ".join([*device.nearest_interfaces, device.nearest_distance]).strip(),
    )


def worst_first(findings: Iterable[OpenFinding]) -> list[OpenFinding]:
    """Return findings in the order in which to look at them."""
    return sorted(findings, key=lambda held: (_WORST_FIRST[held.finding.severity], held.since_ns))


def finding_line(state: State, node: str, held: OpenFinding) -> admin_pb2.FindingLine:
    """Return a finding as shown."""
    finding = held.finding
    return admin_pb2.FindingLine(
        node=node,
        component=finding.component,
        condition=finding.condition,
        severity=finding.severity.value,
        message=finding.message,
        evidence=finding.evidence,
        suggested_action=finding.suggested_action.value,
        rule=finding.rule,
        since_ns=held.since_ns,
        injected=finding.injected,
        mode=state.settings.mode_of(finding.condition, finding.mode).value,
        owner=held.owner.value,
    )


def webhook_line(status: WebhookStatus) -> admin_pb2.WebhookLine:
    """Return how a webhook fares."""
    return admin_pb2.WebhookLine(
        name=status.name,
        host=status.host,
        cursor=status.cursor,
        lag=status.lag,
        sent=status.sent,
        failed=status.failed,
        given_up=status.given_up,
        digested=status.digested,
        answer=status.answer,
        answer_ns=status.answer_ns,
        trouble=status.trouble,
    )


def event(line: Announcement) -> admin_pb2.Event:
    """Return a line of the event list."""
    return admin_pb2.Event(
        id=line.id, at_ns=line.at_ns, reason=line.reason, subject=line.subject, message=line.message
    )


def job_summary(state: State, job: JobRecord, now_ns: int) -> admin_pb2.JobSummary:
    """Return a job in a line."""
    return admin_pb2.JobSummary(
        job=job.name,
        state=job.state.value,
        generation=job.generation.number,
        step=job.lineage.completed_step or 0,
        has_step=job.lineage.completed_step is not None,
        members=job.generation.members,
        spares=[
            node.name for node in candidates(state, job) if node.name not in job.generation.members
        ],
        ettr_time=_effectiveness(state, job, now_ns).ettr_time,
        reason=job.reason,
        uid=job.spec.uid,
        id=job.id,
        outcome=job.outcome or "",
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
        incidents=_incidents(state, job, now_ns),
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
    return admin_pb2.SlowLine(
        kind=part.kind,
        name=part.name,
        node=part.node,
        factor=part.factor,
        first_step=part.since_step,
        share=part.share,
        worth_swap=part.worth_swap,
        evidence=found.found,
        sentence=part.sentence,
    )


def hang_line(job: JobRecord) -> admin_pb2.HangLine | None:
    """Return who holds a job back that stands still; None while nobody has looked."""
    seen = job.hang.seen
    if seen is None:
        return None
    verdict = seen.verdict
    return admin_pb2.HangLine(
        kind=verdict.kind.value,
        confidence=verdict.confidence.value,
        sentence=verdict.sentence,
        culprits=[
            admin_pb2.HangCulprit(
                rank=one.rank, node=one.node, kind=one.kind.value, reason=one.reason
            )
            for one in verdict.culprits
        ],
        suspects=verdict.suspects,
        chain=map(str, verdict.chain),
        blind=verdict.blind,
        evidence=seen.evidence,
        looks=seen.looks,
        seen_ns=job.hang.seen_ns,
        plan=job.hang.plan,
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


def ledger(state: State, job: JobRecord, now_ns: int) -> admin_pb2.Ledger:
    """Return where a job's time went."""
    found = _effectiveness(state, job, now_ns)
    return admin_pb2.Ledger(
        job=job.name,
        wall_ns=found.wall_ns,
        categories=[
            admin_pb2.Category(name=category, time_ns=amount, meaning=category.meaning)
            for category, amount in job.ledger.totals(now_ns).items()
        ],
        ettr_time=found.ettr_time,
        ettr_work=found.ettr_work,
        incidents=_incidents(state, job, now_ns),
        steps=job.ledger.step_count,
        budget_per_failure_s=found.budget_per_failure_s,
        failures=found.failures,
        definitions=DEFINITIONS,
        undecided_step=undecided_step(job),
    )


def _effectiveness(state: State, job: JobRecord, now_ns: int) -> Effectiveness:
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
    return _every_incident(incident)


def _incidents(state: State, job: JobRecord, now_ns: int) -> list[admin_pb2.Incident]:
    return [_incident(job, incident, now_ns) for incident in incidents_of_job(state, job)]


def _incident(job: JobRecord, incident: JobIncident, now_ns: int) -> admin_pb2.Incident:
    shown = _every_incident(incident)
    shown.MergeFrom(
        admin_pb2.Incident(
            plan=incident.plan or "",
            step_before=incident.step_before or 0,
            step_restored=incident.step_restored or 0,
            has_restored=incident.step_restored is not None,
            costs=[
                admin_pb2.Category(name=category, time_ns=amount)
                for category, amount in job.ledger.totals(now_ns, incident.id).items()
            ],
            verdict=incident.verdict,
            deaths=map(death_to_admin, incident.deaths),
            left_behind=incident.left_behind,
            step_resumed=incident.step_resumed,
        )
    )
    return shown


def _every_incident(incident: Incident) -> admin_pb2.Incident:
    return admin_pb2.Incident(
        incident=incident.id,
        onset_ns=incident.onset_ns,
        over_ns=incident.over_ns,
        cause=incident.cause,
        node=incident.node,
        message=incident.message,
        kind=incident.kind,
        subjects=incident.subjects,
        parts=[
            admin_pb2.IncidentPart(
                at_ns=part.at_ns, cause=part.cause, node=part.node, message=part.message
            )
            for part in incident.parts
        ],
    )


def death_to_admin(death: Death) -> admin_pb2.RankDeath:
    """Return one death."""
    return admin_pb2.RankDeath(
        rank=death.exit.rank,
        node=death.node,
        generation=death.exit.generation,
        at_ns=death.at_ns,
        exit_code=death.exit.exit_code,
        signal=death.exit.signal,
        kind=death.exit.kind,
        said=death.exit.exception or death.exit.last_line,
        core_dumped=death.exit.core_dumped,
        core_file=death.exit.core_file,
        step=death.exit.step,
    )


def planned_line(state: State, job: JobRecord) -> admin_pb2.PlannedLine | None:
    """Return what is still to come of planned work on a job; None for nothing."""
    wish = forecast.pending(state, job)
    if wish is None:
        return None
    return admin_pb2.PlannedLine(
        kind=wish.kind,
        by=wish.by,
        reason=wish.reason,
        ordered_ns=wish.ordered_ns,
        after_step=wish.after_step,
        waits=forecast.waits_for(state, job, wish),
        undo=forecast.undo(state, job, wish),
    )
