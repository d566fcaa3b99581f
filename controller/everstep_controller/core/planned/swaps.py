"""Swaps: a spare takes the place of a node at a step boundary, as planned work.

A node is left that is slow, or that may fail soon. Who is slow was judged outside, from what ranks
tell: a job's own word, and statistics, which are never sure enough to take a node away. So it takes
a finding of the node's own that makes a node slow, by its agent or beside its peers. What foretells
a failure is found by what agents read of hardware alone. Operators, budgets and a spare decide
whether automation drains the node, so that no step is lost, or people are told the command.
"""

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Mode
from everstep_controller.core import events
from everstep_controller.core.events import SlowJudged
from everstep_controller.core.jobs import unsaved
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.jobs.slow_steps import put_down_slow_time
from everstep_controller.core.model.job import JobRecord, JobState, PlanKind
from everstep_controller.core.model.node import AUTOMATION, FindingOwner, NodeRecord, OpenFinding
from everstep_controller.core.model.node_findings import precursor_of
from everstep_controller.core.model.slowness import JobSlowness, SlowPart
from everstep_controller.core.model.state import State, jobs_of_node
from everstep_controller.core.model.windows import shown
from everstep_controller.core.nodes import budgets, claims, indexing
from everstep_controller.core.planned.forecast import plan_without
from everstep_controller.core.planned.slow_evidence import (
    SlowEvidence,
    evidence_of,
    found_words,
    is_evidence_open,
    shared_by,
)
from everstep_controller.core.recovery import blame, pair_tests
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, Turn

# --- a swap, whatever it is for -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapCase:
    """Everything by which it is decided whether a node is drained that a job has ranks on."""

    job: str
    node: str
    # What speaks for it, in words; "" for nothing. And what is open as well, and why it does not.
    found: str = ""
    doubted: str = ""
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
    leaving = set(state.index.draining)
    refused = claims.refusal(turn, node, allowed_by.name, allowed_by.mode)
    refusal = (refused.why if refused is not None else _kept_out(node)) or turn.paused(job.name)
    refusal = refusal or _begun_lately(turn, node) or _unsaved(job)
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


def begin_swap(
    turn: Reconciliation, node: NodeRecord, why: str, condition: str, found_ns: int
) -> None:
    """Drain a node: its jobs leave it at a step boundary. What is found began at ``found_ns``."""
    budgets.record_isolation(turn, node)
    node.swap.evidence_since_ns, node.swap.begun_ns = found_ns, turn.now_ns
    claims.drain(turn, node, claims.ClaimCause(AUTOMATION, why, condition))


def is_swapped(node: NodeRecord) -> bool:
    """Return whether automation drains a node; nothing else makes it drain one."""
    claim = node.claim_of(AUTOMATION)
    return claim is not None and claim.draining


# A job that gives its word and takes it back, or a finding that comes and goes, would else spend
# the budget of the fleet. As the hour ends, that budget has room again, and all are judged again.
_AGAIN_NS = 3600 * 10**9


def _begun_lately(turn: Turn, node: NodeRecord) -> str:
    """Return that a node was drained lately, and given back since."""
    begun_ns = node.swap.begun_ns
    if not begun_ns or turn.now_ns - begun_ns >= _AGAIN_NS:
        return ""
    return f"{node.name} was drained already within an hour, at {shown(begun_ns)}, and given back"


def _unsaved(job: JobRecord) -> str:
    """Return that a job would lose steps if it left a node now."""
    told = f"the newest steps of {job.name} are not saved, and it would lose them"
    return told if unsaved.is_unsaved(job) else ""


def _kept_out(node: NodeRecord) -> str:
    """Return who takes a node away already."""
    return (
        f"{node.isolation.claims[0].owner} keeps {node.name} out already"
        if node.isolation.claims
        else ""
    )


# --- slow nodes ----------------------------------------------------------------------------------

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


def decide_slow(part: SlowPart, case: SwapCase, pair_test: str = "") -> Swap:
    """Return what is done about a slow part; ``case`` is of its node, as is what a test shows."""
    if not part.node:
        return Swap(False, "nothing is done by itself: it is not one node")
    if not part.worth_swap:
        return Swap(False, f"nothing is done: without it {case.job} would be about as slow")
    if not case.found:
        tested = f", and {pair_test}" if pair_test else ""
        nothing = f"nothing is found on {case.node} that makes a node slow"
        if case.doubted:
            nothing = f"what is found on {case.node} does not explain it ({case.doubted})"
        why = f"{nothing}{tested}"
        return Swap(False, f"nothing is done by itself: {why}; {case.order}")
    return decide_swap(case, f"{case.node} makes {case.job} wait, and {case.found}")


# --- the job whose ranks wait --------------------------------------------------------------------


def slow_judged(turn: Turn, event: SlowJudged) -> None:
    """Note who makes the others of a job wait, or that nobody does any more."""
    job = turn.state.jobs.get(event.job)
    if job is None or job.state not in ACTIVE or event.generation != job.generation.number:
        return
    put_down_slow_time(turn, job, event)
    if slow_parts(job) == event.parts and job.slow.causes != event.causes:
        job.slow.generation, job.slow.causes = event.generation, event.causes
        return  # it is no news who is slow
    job.slow = JobSlowness(event.generation, event.parts, turn.now_ns, event.causes)
    slow = {part.node for part in event.parts if part.worth_swap}
    for name in list(turn.state.pair_wanted):
        if name not in slow and name in turn.state.nodes:
            pair_tests.withdraw(turn.state, turn.state.nodes[name], job)
    turn.announce(job.name, "SlowJudged", f"{job.name}: {event.sentence}")
    turn.mark_job(job.id)


def slow_parts(job: JobRecord) -> tuple[SlowPart, ...]:
    """Return who is slow in the generation that a job is in."""
    return job.slow.parts if job.slow.generation == job.generation.number else ()


def slow_sentences(state: State, node: NodeRecord) -> Iterator[str]:
    """Yield which jobs name ranks on a node slow, and what is done about it."""
    for job in jobs_of_node(state, node):
        here = [part for part in slow_parts(job) if part.node == node.name]
        if here and job.state in ACTIVE:
            first = here[0]
            yield f"{job.name} waits for it: {first.sentence} ({job.slow.plan})"


def _reconcile_slow_jobs(turn: Reconciliation, job_ids: Set[str]) -> None:
    """Drain the slow nodes of these jobs that may be swapped."""
    for job_id in sorted(job_ids & turn.state.jobs.keys()):
        job = turn.state.jobs[job_id]
        if job.state in ACTIVE:
            _swap_slow_nodes(turn, job)


def reconcile_boundary(turn: Reconciliation, job: JobRecord) -> None:
    """Drain a node that a pair test has shown to be slow before its job gets its next plan."""
    if job.state is JobState.STOPPING and job.generation.pair_tested:
        _swap_slow_nodes(turn, job)


def _swap_slow_nodes(turn: Reconciliation, job: JobRecord) -> None:
    """Drain a slow node that may be swapped, or say what is done; one node of a job at a time."""
    told = []
    for part in slow_parts(job):
        node = turn.state.nodes.get(part.node)
        if node is not None and is_swapped(node):
            told.append(f"a spare takes the place of {node.name} at a step boundary")
            continue
        found = SlowEvidence()
        if node is not None:
            found = evidence_of(turn.state, node, job, part)
        case = _slow_case(turn, job, part, node, found)
        if node is not None and part.worth_swap and not case.found and job.state in ACTIVE:
            pair_tests.nominate(turn, node, job, part.sentence)
        swap = decide_slow(part, case, _pair_test(node))
        told.append(swap.why)
        if swap.drain and node is not None:
            begin_swap(turn, node, swap.why, SLOW_NODE.name, found.since_ns)
    plan = "; ".join(dict.fromkeys(told[:_TOLD_MAX]))
    if plan != job.slow.plan:
        job.slow.plan = plan
        if plan:
            turn.announce(job.name, "SlowPlanned", f"{job.name}: {plan}")


_TOLD_MAX = 3


def _slow_case(
    turn: Turn, job: JobRecord, part: SlowPart, node: NodeRecord | None, evidence: SlowEvidence
) -> SwapCase:
    if node is None:
        return SwapCase(job=job.name, node=part.node)
    # That ranks are slow is one job's word: it moves no other user's.
    case = case_of(turn, job, node, SLOW_NODE, evidence.found)
    neighbour = blame.neighbour(turn, job, node.name)
    return replace(case, doubted=evidence.doubted, neighbour=neighbour)


def _pair_test(node: NodeRecord | None) -> str:
    """Return what a pair test is going to show of a node, or has shown; "" where none is made."""
    if node is None:
        return ""
    if node.pair.nominated_ns:
        return "it is tested beside another node when its ranks stop next"
    result = node.pair.result
    return f"at {shown(node.pair.done_ns)} {result.sentence}" if result is not None else ""


def _why_over(state: State, node: NodeRecord) -> str:
    """Return why nothing shows any more that a node is slow; "" while something does."""
    # What was open before, and was not why it was drained, does not hold it.
    if not is_evidence_open(state, node, node.swap.evidence_since_ns):
        return "what was found on it is over"
    jobs = [job for job in jobs_of_node(state, node) if node.name in job.generation.members]
    if jobs and not any(part.node == node.name for job in jobs for part in slow_parts(job)):
        return "its ranks are as fast as their peers"
    return ""


# --- nodes that may fail soon --------------------------------------------------------------------

# A condition without a finding: operators set by its name how far automation goes with such nodes.
NODE_PRECURSOR = Condition(
    name="NodePrecursor",
    component="node",
    meaning="a node that a job steps on has a finding that foretells a failure: a spare takes its "
    "place at a step boundary, where that is enforced",
    source="ours: open findings that are more than information of IbErrorsUnlikePeers, "
    "GpuMetricsVanished, GpuClocksBelowPeers and GpuBrakedUnlikePeers",
    clears_when="the finding is over, or accepted by an operator",
    mode=Mode.ADVISE,
)


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
    return node.swap.plan if _jobs_on(state, node) else ""


def _reconcile_foretold(turn: Reconciliation, job_ids: Set[str]) -> None:
    """Drain the nodes of these jobs that have a precursor, or say what is done."""
    for name in list(turn.state.index.precursors) if job_ids else ():
        node = turn.state.nodes[name]
        jobs = _jobs_on(turn.state, node)
        if any(job.id in job_ids for job in jobs):
            _swap_foretold_node(turn, node, jobs)


def _swap_foretold_node(turn: Reconciliation, node: NodeRecord, jobs: list[JobRecord]) -> None:
    held = precursor_of(turn.state.policy_of(node.name), node)
    if held is None:
        return
    if is_swapped(node):
        plan = f"a spare takes the place of {node.name} at a step boundary: {trend(held)}"
    else:
        swap = _decide_foretold(turn, node, jobs, held)
        plan = swap.why
        if swap.drain:
            begin_swap(turn, node, swap.why, held.finding.condition, held.since_ns)
    if plan != node.swap.plan:
        node.swap.plan = plan
        turn.announce(node.name, "PrecursorPlanned", f"{node.name}: {plan}")


def _decide_foretold(
    turn: Reconciliation, node: NodeRecord, jobs: list[JobRecord], held: OpenFinding
) -> Swap:
    """Return what is done: all jobs on the node move, so nothing may speak against it in any."""
    why = f"{node.name} may fail: {trend(held)}"
    swaps = [_swap_of_job(turn, node, job, held, why) for job in jobs]
    return next((swap for swap in swaps if not swap.drain), swaps[0])


def _swap_of_job(turn: Turn, node: NodeRecord, job: JobRecord, held: OpenFinding, why: str) -> Swap:
    case = case_of(turn, job, node, NODE_PRECURSOR, trend(held))
    if shared := shared_by(turn.state, node, job, held):
        # A driver that tells less, say: moving the job away from one of them changes nothing.
        found = f"{case.found}, {shared}: one cause for all"
        return Swap(False, f"nothing is done by itself, though {found}; {case.order}")
    return decide_swap(case, why)


def _jobs_on(state: State, node: NodeRecord) -> list[JobRecord]:
    """Return the jobs that have ranks on a node."""
    jobs = jobs_of_node(state, node)
    return [job for job in jobs if job.state in ACTIVE and node.name in job.generation.members]


# --- nodes, and what ends a swap of either kind --------------------------------------------------


def reconcile_node(turn: Reconciliation, node: NodeRecord) -> None:
    """Note whether a node has a precursor; give it back when nothing shows why it was drained."""
    found = precursor_of(turn.state.policy_of(node.name), node) is not None
    indexing.refresh(turn, node)
    if not found or not _jobs_on(turn.state, node):
        node.swap.plan = ""
    if not is_swapped(node):
        return
    mode = turn.state.mode_of(node, NODE_PRECURSOR.name, NODE_PRECURSOR.mode)
    if found and mode is Mode.ENFORCE:
        return
    if why := _why_over(turn.state, node):
        claims.unclaim(turn, node, AUTOMATION, why)


def _reconcile_drained(turn: Reconciliation, job_ids: Set[str]) -> None:
    """Look at the drained nodes of these jobs again: their ranks may be well by now."""
    draining = set(turn.state.index.draining) if job_ids else set()
    for job_id in sorted(job_ids & turn.state.jobs.keys()):
        members = turn.state.jobs[job_id].generation.members
        for name in sorted(draining.intersection(members)):
            reconcile_node(turn, turn.state.nodes[name])


def reconcile_jobs(turn: Reconciliation, job_ids: Set[str]) -> None:
    """Give back nodes of these jobs that are well, and drain those that may be swapped."""
    _reconcile_drained(turn, job_ids)
    _reconcile_slow_jobs(turn, job_ids)
    _reconcile_foretold(turn, job_ids)


HANDLERS: Handlers = {
    events.SlowJudged: slow_judged,
}
