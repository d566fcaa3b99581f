"""Swap of slow nodes: a spare takes the place of a node on which is found why it is slow.

Who is slow was judged outside, from what ranks tell: a job's own word, and statistics, which are
never sure enough to take a node away. Only where something is found of the node's own that makes a
node slow, by its agent, beside its peers or by a pair test, the operators let automation act on it,
and a spare waits, the node is drained: the job leaves it at a step boundary, and no step is lost.
Without any of these the node is nominated for a pair test, when its ranks stop next.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from types import MappingProxyType

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Mode
from everstep_controller.core import events
from everstep_controller.core.events import SlowJudged
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.model.node import FindingOwner, NodeRecord
from everstep_controller.core.model.slowness import JobSlowness, SlowPart
from everstep_controller.core.model.state import State, jobs_of_node
from everstep_controller.core.planned.swaps import (
    JUDGED,
    Swap,
    SwapCase,
    begin_swap,
    case_of,
    decide_swap,
    findings_of,
    found_words,
    is_swapped,
)
from everstep_controller.core.recovery import blame, pair_tests
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, Turn

# A condition without a finding: operators set by its name how far automation goes with such nodes.
SLOW_NODE = Condition(
    name="SlowNode",
    component="node",
    meaning="ranks on the node make the others of their job wait, and something is found on it "
    "that makes a node slow: a spare takes its place at a step boundary, where that is enforced",
    source="the ranks' own work in each step (`run.waiting()`), compared with that of their peers, "
    "and an open finding of the agent about clocks, power, heat, PCIe or links, of the controller "
    "about its GPUs beside their peers, or of a pair test",
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


# The same of the controller: it compares what agents read of hardware, and what fixed work takes on
# nodes without ranks, and no word of a job.
_OWNERS: Mapping[str, FindingOwner] = MappingProxyType(
    dict.fromkeys(EVIDENCE, FindingOwner.AGENT)
    | dict.fromkeys(JUDGED, FindingOwner.CONTROLLER)
    | {pair_tests.PAIR_TEST_SLOW.name: FindingOwner.CORE}
)


def decide_slow(part: SlowPart, case: SwapCase, pair_test: str = "") -> Swap:
    """Return what is done about a slow part; ``case`` is of its node, as is what a test shows."""
    if not part.node:
        return Swap(False, "nothing is done by itself: it is not one node")
    if not part.worth_swap:
        return Swap(False, f"nothing is done: without it {case.job} would be about as slow")
    if not case.found:
        tested = f", and {pair_test}" if pair_test else ""
        why = f"nothing is found on {case.node} that makes a node slow{tested}"
        return Swap(False, f"nothing is done by itself: {why}; {case.order}")
    return decide_swap(case, f"{case.node} makes {case.job} wait, and {case.found}")


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
    """Drain the slow nodes of these jobs that may be swapped."""
    for job_id in sorted(job_ids & turn.state.jobs.keys()):
        job = turn.state.jobs[job_id]
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
        if node is not None and is_swapped(node):
            told.append(f"a spare takes the place of {node.name} at a step boundary")
            continue
        case = _case(turn, job, part, node)
        if node is not None and part.worth_swap and not case.found and job.state in ACTIVE:
            pair_tests.nominate(turn, node, job, part.sentence)
        swap = decide_slow(part, case, _pair_test(node))
        told.append(swap.why)
        if swap.drain and node is not None:
            begin_swap(turn, node, swap.why)
    plan = "; ".join(dict.fromkeys(told[:_TOLD_MAX]))
    if plan != job.slow.plan:
        job.slow.plan = plan
        if plan:
            turn.announce(job.name, "SlowPlanned", f"{job.name}: {plan}")


_TOLD_MAX = 3


def _case(turn: Turn, job: JobRecord, part: SlowPart, node: NodeRecord | None) -> SwapCase:
    if node is None:
        return SwapCase(job=job.name, node=part.node)
    # That ranks are slow is one job's word: it moves no other user's.
    case = case_of(turn, job, node, SLOW_NODE, evidence_of(turn.state, node))
    return replace(case, neighbour=blame.neighbour(turn, job, node.name))


def _pair_test(node: NodeRecord | None) -> str:
    """Return what a pair test is going to show of a node, or has shown; "" where none is made."""
    if node is None:
        return ""
    if node.pair.nominated_ns:
        return "it is tested beside another node when its ranks stop next"
    return node.pair.result.sentence if node.pair.result is not None else ""


def evidence_of(state: State, node: NodeRecord) -> str:
    """Return what is found on a node that makes it slow, in words; "" for nothing."""
    return next(map(found_words, findings_of(state, node, _OWNERS)), "")


def why_over(state: State, node: NodeRecord) -> str:
    """Return why nothing shows any more that a node is slow; "" while something does."""
    if not evidence_of(state, node):
        return "what was found on it is over"
    jobs = [job for job in jobs_of_node(state, node) if node.name in job.generation.members]
    if jobs and not any(part.node == node.name for job in jobs for part in slow_parts(job)):
        return "its ranks are as fast as their peers"
    return ""


HANDLERS: Handlers = {
    events.SlowJudged: slow_judged,
}
