"""Precursors: what foretells that a node fails, and the swap for a spare before it does.

They are found by what agents read of hardware, so no job's word is needed, and none can make one.
Where operators let it, the node is drained: its jobs leave it at a step boundary, and no step is
lost. Else people are told the command that does it.
"""

from collections.abc import Mapping, Set
from types import MappingProxyType

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Mode
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import AUTOMATION, FindingOwner, NodeRecord, OpenFinding
from everstep_controller.core.model.state import State, jobs_of_node, keep_listed
from everstep_controller.core.model.windows import shown
from everstep_controller.core.nodes import claims
from everstep_controller.core.planned import slow_swap
from everstep_controller.core.planned.swaps import (
    Swap,
    begin_swap,
    case_of,
    decide_swap,
    findings_of,
    found_words,
    is_swapped,
)
from everstep_controller.core.turn import Reconciliation

# A condition without a finding: operators set by its name how far automation goes with such nodes.
NODE_PRECURSOR = Condition(
    name="NodePrecursor",
    component="node",
    meaning="a node that a job steps on has a finding that foretells a failure: a spare takes its "
    "place at a step boundary, where that is enforced",
    source="ours: open findings that are more than information of IbLoneRecoveries, "
    "GpuMetricsVanished, GpuClocksBelowPeers and GpuBrakedUnlikePeers",
    clears_when="the finding is over, or accepted by an operator",
    mode=Mode.ADVISE,
)

# Conditions that foretell a failure, and whose finding it is. One that is only told as information,
# such as the first retraining of a link, asks for nothing yet.
PRECURSORS: Mapping[str, FindingOwner] = MappingProxyType(
    {
        "IbLoneRecoveries": FindingOwner.AGENT,
        "GpuMetricsVanished": FindingOwner.AGENT,
        "GpuClocksBelowPeers": FindingOwner.CONTROLLER,
        "GpuBrakedUnlikePeers": FindingOwner.CONTROLLER,
    }
)


def precursor_of(state: State, node: NodeRecord) -> OpenFinding | None:
    """Return the oldest finding of a node that foretells a failure; None for none."""
    found = findings_of(state, node, PRECURSORS)
    return min(found, key=lambda held: held.since_ns, default=None)


def trend(held: OpenFinding) -> str:
    """Return what is found, since when, what it was at first, and what it is now."""
    first, now = held.first_evidence, held.finding.evidence
    words, since = found_words(held), shown(held.since_ns)
    if held.owner is FindingOwner.AGENT and now:
        words = f"{words} ({now})"
    if first and first != now:
        return f"{words}, since {since}, when it was {first}"
    return f"{words}, since {since}"


def swap_plan(state: State, node: NodeRecord) -> str:
    """Return what is done about a precursor on a node, as people were told; "" for nothing."""
    return node.swap_plan if _jobs(state, node) else ""


def reconcile_jobs(turn: Reconciliation, job_ids: Set[str]) -> None:
    """Drain the nodes of these jobs that have a precursor, or say what is done."""
    for name in list(turn.state.precursors) if job_ids else ():
        node = turn.state.nodes[name]
        jobs = _jobs(turn.state, node)
        if any(job.id in job_ids for job in jobs):
            _reconcile(turn, node, jobs)


def _reconcile(turn: Reconciliation, node: NodeRecord, jobs: list[JobRecord]) -> None:
    held = precursor_of(turn.state, node)
    if held is None:
        return
    if is_swapped(node):
        plan = f"a spare takes the place of {node.name} at a step boundary: {trend(held)}"
    else:
        swap = _decide(turn, node, jobs, trend(held))
        plan = swap.why
        if swap.drain:
            begin_swap(turn, node, swap.why)
    if plan != node.swap_plan:
        node.swap_plan = plan
        turn.announce(node.name, "PrecursorPlanned", f"{node.name}: {plan}")


def _decide(turn: Reconciliation, node: NodeRecord, jobs: list[JobRecord], found: str) -> Swap:
    """Return what is done: all jobs on the node move, so nothing may speak against it in any."""
    why = f"{node.name} may fail: {found}"
    swaps = [decide_swap(case_of(turn, job, node, NODE_PRECURSOR, found), why) for job in jobs]
    return next((swap for swap in swaps if not swap.drain), swaps[0])


def _jobs(state: State, node: NodeRecord) -> list[JobRecord]:
    """Return the jobs that have ranks on a node."""
    jobs = jobs_of_node(state, node)
    return [job for job in jobs if job.state in ACTIVE and node.name in job.generation.members]


# --- nodes, and what ends a swap of either kind --------------------------------------------------


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Note whether a node has a precursor; give it back when nothing shows why it was drained."""
    found = precursor_of(turn.state, node) is not None
    keep_listed(turn.state.precursors, node.name, listed=found)
    if not found or not _jobs(turn.state, node):
        node.swap_plan = ""
    if not is_swapped(node):
        return
    mode = claims.mode_of(turn.state, NODE_PRECURSOR.name, NODE_PRECURSOR.mode)
    if found and mode is Mode.ENFORCE:
        return
    if why := slow_swap.why_over(turn.state, node):
        claims.unclaim(turn, node, AUTOMATION, why)


def reconcile_drained(turn: Reconciliation, job_ids: Set[str]) -> None:
    """Look at the drained nodes of these jobs again: their ranks may be well by now."""
    draining = set(turn.state.draining) if job_ids else set()
    for job_id in sorted(job_ids & turn.state.jobs.keys()):
        members = turn.state.jobs[job_id].generation.members
        for name in sorted(draining.intersection(members)):
            reconcile_node(turn, turn.state.nodes[name])
