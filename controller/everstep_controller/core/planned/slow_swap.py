"""Swap of slow nodes: a spare takes the place of a node whose agent finds why it is slow.

Who is slow was judged outside, from what ranks tell: a job's own word, and statistics, which are
never sure enough to take a node away. Only where the node's agent has found something of its own
that makes a node slow, or a pair test has shown that it is, the operators let automation act on it,
and a spare waits, the node is drained: the job leaves it at a step boundary, and no step is lost.
Without either the node is nominated for a pair test, when its ranks stop next.
"""

from collections.abc import Set
from dataclasses import dataclass

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Mode, Severity
from everstep_controller.core import events
from everstep_controller.core.events import SlowJudged
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState, PlanKind
from everstep_controller.core.model.node import AUTOMATION, FindingOwner, NodeRecord, OpenFinding
from everstep_controller.core.model.slowness import JobSlowness, SlowPart
from everstep_controller.core.model.state import State, jobs_of_node
from everstep_controller.core.nodes import budgets, claims, health
from everstep_controller.core.planned.forecast import plan_without
from everstep_controller.core.recovery import blame, pair_tests
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, Turn

# A condition without a finding: operators set by its name how far automation goes with such nodes.
SLOW_NODE = Condition(
    name="SlowNode",
    component="node",
    meaning="ranks on the node make the others of their job wait, and its agent has found what "
    "makes a node slow, or a pair test has shown that it is: a spare takes its place at a step "
    "boundary, where that is enforced",
    source="the ranks' own work in each step (`run.waiting()`), compared with that of their peers, "
    "and an open finding of the agent about clocks, power, heat, PCIe or links, or PairTestSlow",
    clears_when="the finding is over, or the job goes on on the node and its ranks are as fast as "
    "their peers",
    mode=Mode.ADVISE,
)

# What makes a node slow and what a job cannot make its agent find by what its ranks tell.
EVIDENCE = frozenset(
    {
        *("GpuClocksLow", "GpuHardwareSlowdown", "GpuPowerBrake", "GpuThermalSlowdown"),
        *("GpuTemperatureHigh", "GpuPowerLimitsDiffer", "GpuPcieReplays", "GpuPcieWidth"),
        *("GpuPcieGeneration", "GpuEccCorrectedRate", "GpuEccCorrectedStorm", "NvlinkDown"),
        *("NvlinkDegraded", "NvlinkErrors", "NvlinkLoneErrors", "NvlinkCrc", "XidDegraded"),
        *("AcceleratorPcieNarrow", "AcceleratorTooHot", "AcceleratorEccCorrectedRate"),
        *("PcieErrorStorm", "PcieErrorCorrected", "LinkSlow", "LinkDropped", "LinkFlapping"),
        *("LinkBounced", "LinkDown", "LinkHalfDuplex", "NicLinkFlapping", "NicLinkDown"),
        *("BondDegraded", "HcaPcieNarrow", "HcaTooHot", "CpuThermalThrottle", "CpuTooHot"),
        *("CpuGovernor", "ClockSourceSlow", "MemoryErrorCorrected", "MachineCheckCorrected"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapCase:
    """Everything by which it is decided what is done about a slow part of a job."""

    job: str
    part: SlowPart
    # What its node's agent, or a pair test, has found; "" for nothing that makes a node slow.
    evidence: str = ""
    # What a pair test of the node is going to show, or has shown; "" where none is made.
    pair_test: str = ""
    # Why automation may not drain the node; the job of another user that steps there; "" for none.
    refusal: str = ""
    neighbour: str = ""
    # A spare waits; and the job restarts for something else first.
    has_spare: bool = False
    planned: bool = False


@dataclass(frozen=True, slots=True)
class Swap:
    """Whether a node is drained, and why, or why not."""

    drain: bool
    why: str


def decide_swap(case: SwapCase) -> Swap:
    """Return what is done about a slow part."""
    part = case.part
    order = f"to swap it: everstep drain {part.node} --reason TEXT"
    if not part.node:
        return Swap(False, "nothing is done by itself: it is not one node")
    if not part.worth_swap:
        return Swap(False, f"nothing is done: without it {case.job} would be about as slow")
    if not case.evidence:
        why = f"the agent of {part.node} has found nothing that makes a node slow"
        tested = f", and {case.pair_test}" if case.pair_test else ""
        return Swap(False, f"nothing is done by itself: {why}{tested}; {order}")
    if case.neighbour:
        why = f"job {case.neighbour} of another user steps on {part.node}"
        return Swap(False, f"nothing is done by itself: {why}; {order}")
    if case.refusal:
        why = f"though {case.evidence}: {case.refusal}"
        return Swap(False, f"nothing is done by itself, {why}; {order}")
    if case.planned:
        return Swap(False, f"{part.node} is swapped when what is planned is done: {case.evidence}")
    if not case.has_spare:
        return Swap(False, f"{part.node} is swapped when a spare waits: {case.evidence}")
    return Swap(True, f"{part.node} makes {case.job} wait, and {case.evidence}")


# --- the job whose ranks wait --------------------------------------------------------------------


def slow_judged(turn: Turn, event: SlowJudged) -> None:
    """Note who makes the others of a job wait, or that nobody does any more."""
    job = turn.state.jobs.get(event.job)
    if job is None or job.state not in ACTIVE or event.generation != job.generation.number:
        return
    job.slow = JobSlowness(event.generation, event.parts, turn.now_ns)
    slow = {part.node for part in event.parts if part.worth_swap}
    for name in list(turn.state.pair_wanted):
        if name not in slow and name in turn.state.nodes:
            pair_tests.withdraw(turn.state, turn.state.nodes[name], job)
    turn.announce(job.name, "SlowJudged", f"{job.name}: {event.sentence}")
    turn.mark_job(job.id)


def slow_parts(job: JobRecord) -> tuple[SlowPart, ...]:
    """Return who is slow in the generation that a job is in."""
    return job.slow.parts if job.slow.generation == job.generation.number else ()


def reconcile_jobs(turn: Reconciliation, job_ids: Set[str]) -> None:
    """Drain the slow nodes of these jobs that may be swapped, and give back those that are well."""
    draining = set(turn.state.draining) if job_ids else set()
    for job_id in sorted(job_ids & turn.state.jobs.keys()):
        job = turn.state.jobs[job_id]
        for name in sorted(draining.intersection(job.generation.members)):
            reconcile_node(turn, turn.state.nodes[name])
        if job.state in ACTIVE:
            _reconcile_job(turn, job)


def reconcile_boundary(turn: Reconciliation, job: JobRecord) -> None:
    """Drain a node that a pair test has shown to be slow before its job gets its next plan."""
    if job.state is JobState.STOPPING and job.generation.pair_tested:
        _reconcile_job(turn, job)


def _reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Drain a slow node that may be swapped, or say what is done; one node of a job at a time."""
    told = []
    for part in slow_parts(job):
        node = turn.state.nodes.get(part.node)
        if node is not None and _holds(node):
            told.append(f"a spare takes the place of {node.name} at a step boundary")
            continue
        case = _case(turn, job, part, node)
        swap = decide_swap(case)
        if node is not None and part.worth_swap and not case.evidence and job.state in ACTIVE:
            pair_tests.nominate(turn, node, job, part.sentence)
            swap = decide_swap(_case(turn, job, part, node))
        told.append(swap.why)
        if swap.drain and node is not None:
            budgets.record_isolation(turn)
            claims.drain(turn, node, AUTOMATION, swap.why)
    plan = "; ".join(dict.fromkeys(told[:_TOLD_MAX]))
    if plan != job.slow.plan:
        job.slow.plan = plan
        if plan:
            turn.announce(job.name, "SlowPlanned", f"{job.name}: {plan}")


_TOLD_MAX = 3


def _case(turn: Turn, job: JobRecord, part: SlowPart, node: NodeRecord | None) -> SwapCase:
    if node is None:
        return SwapCase(job=job.name, part=part)
    state = turn.state
    leaving = set(state.draining)
    refused = claims.refusal(turn, node, SLOW_NODE.name, SLOW_NODE.mode)
    why = refused.why if refused is not None else _kept_out(node)
    members, kind = plan_without(state, job, {*leaving, node.name})
    # A generation that has stopped gets its next plan at once, whatever it was stopped for.
    running = job.state in ACTIVE
    planned = job.planned is not None or not leaving.isdisjoint(job.generation.members)
    return SwapCase(
        job=job.name,
        part=part,
        evidence=evidence_of(state, node),
        refusal=why or turn.paused(job.name),
        neighbour=blame.neighbour(turn, job, node.name),
        has_spare=bool(members) and kind is PlanKind.SPARE,
        planned=running and planned,
        pair_test=_pair_test(node),
    )


def _pair_test(node: NodeRecord) -> str:
    """Return what a pair test is going to show of a node, or has shown."""
    if node.pair.nominated_ns:
        return "it is tested beside another node when its ranks stop next"
    return node.pair.result.sentence if node.pair.result is not None else ""


def _kept_out(node: NodeRecord) -> str:
    """Return who takes a node away already."""
    return f"{node.claims[0].owner} keeps {node.name} out already" if node.claims else ""


def evidence_of(state: State, node: NodeRecord) -> str:
    """Return what an agent or a pair test has found that makes a node slow; "" for nothing."""
    for held in node.findings.values():
        finding = held.finding
        observed = claims.mode_of(state, finding.condition, finding.mode) is Mode.OBSERVE
        bad = finding.severity is not Severity.INFO and _is_evidence(held)
        if bad and health.counts_against_node(held) and not observed:
            who = "its agent" if held.owner is FindingOwner.AGENT else "a pair test"
            return f"{who} found {finding.condition}: {health.finding_sentence(finding)}"
    return ""


def _is_evidence(held: OpenFinding) -> bool:
    """Return whether a finding is about slowness, and of somebody whom no job can make find it."""
    if held.owner is FindingOwner.AGENT:
        return held.finding.condition in EVIDENCE
    return (
        held.owner is FindingOwner.CORE and held.finding.condition == pair_tests.PAIR_TEST_SLOW.name
    )


# --- the node that was swapped -------------------------------------------------------------------


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Give a node back that was drained for slowness, when nothing shows any more that it is."""
    if not _holds(node):
        return
    jobs = [job for job in jobs_of_node(turn.state, node) if node.name in job.generation.members]
    if not evidence_of(turn.state, node):
        claims.unclaim(turn, node, AUTOMATION, "nothing that makes it slow is found any more")
    elif jobs and not any(part.node == node.name for job in jobs for part in slow_parts(job)):
        claims.unclaim(turn, node, AUTOMATION, "its ranks are as fast as their peers")


def _holds(node: NodeRecord) -> bool:
    """Return whether a node is drained for slowness; nothing else makes automation drain one."""
    claim = node.claim_of(AUTOMATION)
    return claim is not None and claim.draining


HANDLERS: Handlers = {
    events.SlowJudged: slow_judged,
}
