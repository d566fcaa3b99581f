"""Swaps: a spare takes the place of a node at a step boundary, as planned work.

Findings on the node are the evidence; operators, budgets and a spare decide whether automation does
it, or people are told the command. Nothing here depends on why the node is to leave.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Mode, Severity
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import JobRecord, PlanKind
from everstep_controller.core.model.node import (
    AUTOMATION,
    FindingOwner,
    NodeRecord,
    OpenFinding,
)
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import budgets, claims, health
from everstep_controller.core.planned.forecast import plan_without
from everstep_controller.core.recovery.pair_tests import PAIR_TEST_SLOW
from everstep_controller.core.turn import Reconciliation, Turn

# Findings of the controller by which it compares what agents read of hardware.
JUDGED = frozenset({"GpuClocksBelowPeers", "GpuBrakedUnlikePeers", "GpuPcieBelowPeers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapCase:
    """Everything by which it is decided whether a node is drained that a job has ranks on."""

    job: str
    node: str
    # What speaks for it, in words; "" for nothing.
    found: str = ""
    # Why automation may not drain the node; the job of another user that keeps it there; "" for
    # none.
    refusal: str = ""
    neighbour: str = ""
    # A spare waits; and the job restarts for something else first.
    has_spare: bool = False
    planned: bool = False

    @property
    def order(self) -> str:
        """Return how an operator does it."""
        return f"to swap it: everstep drain {self.node} --reason TEXT"


@dataclass(frozen=True, slots=True)
class Swap:
    """Whether a node is drained, and why, or why not."""

    drain: bool
    why: str


def decide_swap(case: SwapCase, why: str) -> Swap:
    """Return what is done about a node on which something is found; ``why`` it is to leave."""
    if case.neighbour:
        kept = f"job {case.neighbour} of another user steps on {case.node}"
        return Swap(False, f"nothing is done by itself: {kept}; {case.order}")
    if case.refusal:
        kept = f"though {case.found}: {case.refusal}"
        return Swap(False, f"nothing is done by itself, {kept}; {case.order}")
    if case.planned:
        return Swap(False, f"{case.node} is swapped when what is planned is done: {case.found}")
    if not case.has_spare:
        return Swap(False, f"{case.node} is swapped when a spare waits: {case.found}")
    return Swap(True, why)


def case_of(
    turn: Turn, job: JobRecord, node: NodeRecord, allowed_by: Condition, found: str
) -> SwapCase:
    """Return the case of a job and a node of it; its operators allow it by a condition's name."""
    state = turn.state
    leaving = set(state.draining)
    refused = claims.refusal(turn, node, allowed_by.name, allowed_by.mode)
    refusal = (refused.why if refused is not None else _kept_out(node)) or turn.paused(job.name)
    # A generation that has stopped gets its next plan at once, whatever it was stopped for.
    waits = job.planned is not None or not leaving.isdisjoint(job.generation.members)
    planned = waits and job.state in ACTIVE
    has_spare = False
    if not refusal and not planned:  # a plan of a large job takes time
        members, kind = plan_without(state, job, {*leaving, node.name})
        has_spare = bool(members) and kind is PlanKind.SPARE
    return SwapCase(
        job=job.name,
        node=node.name,
        found=found,
        refusal=refusal,
        has_spare=has_spare,
        planned=planned,
    )


def begin_swap(turn: Reconciliation, node: NodeRecord, why: str) -> None:
    """Drain a node: its jobs leave it at a step boundary."""
    budgets.record_isolation(turn)
    claims.drain(turn, node, AUTOMATION, why)


def is_swapped(node: NodeRecord) -> bool:
    """Return whether automation drains a node; nothing else makes it drain one."""
    claim = node.claim_of(AUTOMATION)
    return claim is not None and claim.draining


def _kept_out(node: NodeRecord) -> str:
    """Return who takes a node away already."""
    return f"{node.claims[0].owner} keeps {node.name} out already" if node.claims else ""


# --- what is found -------------------------------------------------------------------------------


def findings_of(
    state: State, node: NodeRecord, owners: Mapping[str, FindingOwner]
) -> Iterator[OpenFinding]:
    """Yield the open findings of a node that are of these conditions and count against it."""
    for held in node.findings.values():
        finding = held.finding
        counts = health.counts_against_node(held) and finding.severity is not Severity.INFO
        if counts and owners.get(finding.condition) is held.owner:
            mode = claims.mode_of(state, finding.condition, finding.mode)
            if mode is not Mode.OBSERVE:
                yield held


def found_words(held: OpenFinding) -> str:
    """Return who has found what, in words."""
    finding = held.finding
    sentence = f"found {finding.condition}: {health.finding_sentence(finding)}"
    if held.owner is FindingOwner.AGENT:
        return f"its agent {sentence}"
    if finding.condition == PAIR_TEST_SLOW.name:
        return f"a pair test {sentence}"
    return f"the controller {sentence}" + (f" ({finding.evidence})" if finding.evidence else "")
