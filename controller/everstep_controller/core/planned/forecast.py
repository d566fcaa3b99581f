"""Forecast: what planned work and maintenance windows will do to jobs, and the words for it."""

from collections.abc import Iterator

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.accounting.categories import PLANNED_WORK
from everstep_controller.core.fleet.incidents import incidents_of_job
from everstep_controller.core.jobs import restore_point, unsaved
from everstep_controller.core.jobs.lifecycle import ACTIVE, BEGINNING, STEPPING
from everstep_controller.core.model.job import JobRecord, JobState, PlanKind, Planned, PlannedKind
from everstep_controller.core.model.node import MAINTENANCE, OpenFinding
from everstep_controller.core.model.state import FLEET, State, jobs_of_node
from everstep_controller.core.model.windows import Span, Window, between, holding
from everstep_controller.core.recovery import planning

MAINTENANCE_INTERRUPTS = Condition(
    name="MaintenanceInterrupts",
    component="controller/maintenance/WINDOW/JOB",
    meaning="a maintenance window will interrupt a job: it has no spare, and cannot or may not "
    "re-form without the window's nodes",
    source="the job's plan without those nodes",
    clears_when="there is a spare, or the window is over or cancelled",
    mode=Mode.ADVISE,
)


def plan_without(state: State, job: JobRecord, draining: set[str]) -> tuple[list[str], PlanKind]:
    """Return the members and the kind of plan that leave nodes; no member if that cannot be."""
    able = [node for node in planning.candidates(state, job) if node.name not in draining]
    return planning.place_members(state, job, able)


def forecast(state: State, job: JobRecord, node: str) -> str:
    """Say what draining a node will do to a job that has ranks there."""
    members, kind = plan_without(state, job, {node})
    if not members:
        may = "it has no spare" if job.spec.reform else "it has no spare and may not re-form"
        return f"{job.name} stays on {node} until another node joins: {may}"
    new = ", ".join(name for name in members if name not in job.generation.members)
    how = f"{new} takes its place" if kind is PlanKind.SPARE else f"on {len(members)} nodes"
    if not restore_point.has_state(job):
        return f"{job.name} is stopped at once, and starts again ({how}): it makes no snapshots"
    chosen = None if job.planned is None else job.planned.after_step
    step = "a step that is recoverable" if chosen is None else f"step {chosen}"
    return f"{job.name} goes on without {node} after {step}: {how}{_price(state, job)}"


def _price(state: State, job: JobRecord) -> str:
    """Say what leaving a node costs a job whose steps are not saved; "" for nothing."""
    lost, known = unsaved.steps_at_risk(job), job.lineage.recoverable_step
    if not lost:
        return ""
    wait_s = state.settings.planned_restart_timeout_ns // 1_000_000_000
    back = "from its beginning" if known is None else f"after step {known}"
    return (
        f"; its newest {lost} steps are not saved, and it makes them again, {back}, unless a newer "
        f"one is recoverable within {wait_s} s"
    )


def describe(job: JobRecord, wish: Planned) -> str:
    """Say what is planned."""
    step = "a step boundary" if wish.after_step is None else f"the boundary after {wish.after_step}"
    lossless = "" if restore_point.has_state(job) else ", without a snapshot, for it makes none"
    what = "the end of the job" if wish.kind is PlannedKind.STOP else "a restart"
    return f"{what} at {step} is planned{lossless} ({wish.kind}, {wish.by}): {wish.reason}"


def pending(state: State, job: JobRecord) -> Planned | None:
    """Return what is planned of a job, or a drain that it cannot follow yet; None for nothing."""
    leaving = drained(state, job)
    if job.planned is not None or not leaving or job.state not in ACTIVE:
        return job.planned
    claim = state.nodes[leaving[0]].isolation.claims[0]
    reason = f"{', '.join(leaving)} {'is' if len(leaving) == 1 else 'are'} drained: {claim.reason}"
    return Planned(PlannedKind.DRAIN, claim.owner, reason, job.generation.number, claim.since_ns)


def drained(state: State, job: JobRecord) -> list[str]:
    """Return the members that a job is to leave."""
    known = (state.nodes.get(name) for name in job.generation.members)
    return sorted(node.name for node in known if node is not None and node.draining)


def waits_for(state: State, job: JobRecord, wish: Planned) -> str:
    """Say what planned work still waits for, and how far that is."""
    if job.state is JobState.STOPPING:
        return "its processes are ending"
    subject = next((name for name in (job.name, FLEET) if name in state.paused), "")
    # That a job ends is no automation.
    if subject and wish.kind is not PlannedKind.STOP:
        resume = "everstep resume" + (f" {subject}" if subject != FLEET else "")
        return f"automation is paused: {state.paused[subject]}; to go on: {resume}"
    if wish is not job.planned:
        return forecast(state, job, drained(state, job)[0])
    if job.state in BEGINNING and wish.is_at_any_step:
        return f"{job.name} is {job.state.value}: it is stopped within 10 s if it makes no step"
    if job.state not in STEPPING or wish.after_step is None:
        return f"{job.name} is {job.state.value}: the step is chosen when it has made some"
    if job.lineage.last_step is None or job.lineage.last_step < wish.after_step:
        at = (
            "none is made yet"
            if job.lineage.last_step is None
            else f"the newest is {job.lineage.last_step}"
        )
        still = "; it is stopped within 10 s without a step" if wish.is_at_any_step else ""
        return f"for step {wish.after_step}, {at}{still}"
    newest = (
        "none is"
        if job.lineage.recoverable_step is None
        else f"the newest is {job.lineage.recoverable_step}"
    )
    return f"until step {wish.after_step} can be restored, {newest}"


def undo(state: State, job: JobRecord, wish: Planned) -> str:
    """Return the command that takes planned work back."""
    if job.ending.asked_on:
        return f"start {job.name} again when it has ended"
    if wish.kind in (PlannedKind.RESTART, PlannedKind.STOP):
        return f"everstep job {job.name} {wish.kind} --cancel"
    if wish.kind in (PlannedKind.GROWTH, PlannedKind.MOVE):
        return f"everstep pause {job.name} --reason TEXT"
    node = next(iter(drained(state, job)), "NODE")
    window = holding(state.windows.values(), node)
    known = state.nodes.get(node)
    if window is not None and known is not None and known.claim_of(MAINTENANCE) is not None:
        return f"everstep maintenance cancel {window.id}"
    return f"everstep release {node}"


def lead_ns(state: State, span: Span) -> int:
    """Return how long before a window its nodes are drained.

    It is the operator's time, or what a planned restart of a job there may take: to wait for a step
    that can be restored, and what the longest one so far took from there.
    """
    # One that waited for nodes, for the end of a window perhaps, tells nothing of restarts.
    restarts = [
        incident.over_ns - incident.onset_ns
        for job in jobs_in_span(state, span)
        for incident in incidents_of_job(state, job)
        if incident.over_ns
        and incident.cause in PLANNED_WORK
        and incident.plan is not PlanKind.WAITED
    ]
    needed_ns = state.settings.planned_restart_timeout_ns + max(restarts) if restarts else 0
    return max(state.settings.maintenance_drain_lead_ns, needed_ns)


def window_forecasts(state: State, window: Window) -> Iterator[tuple[str, str]]:
    """Yield each job that a window still concerns, and what it does to it; "" for moving away."""
    if not window.open:
        return
    leaving = {*state.index.draining, *window.span.nodes}
    for job in jobs_in_span(state, window.span):
        can_move = bool(plan_without(state, job, leaving)[0])
        yield job.name, "" if can_move else _interrupted(job, window)


def interruption_findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding for each job that a window will interrupt."""
    for window in state.windows.values():
        for name, interruption in window_forecasts(state, window):
            if interruption:
                yield OpenFinding(_finding(window, name, interruption), window.ordered_ns)


def window_sentences(state: State) -> dict[str, str]:
    """Say of each node that has a window which one is next, or which one it is in."""
    waiting = sorted(
        (window for window in state.windows.values() if window.open),
        key=lambda window: window.span.begin_ns,
        reverse=True,
    )
    return {name: window.sentence() for window in waiting for name in window.span.nodes}


def jobs_in_span(state: State, span: Span) -> list[JobRecord]:
    """Return the jobs that have ranks on nodes of a window."""
    known = (state.nodes[name] for name in span.nodes if name in state.nodes)
    there = {job.id: job for node in known for job in jobs_of_node(state, node)}
    leaving = frozenset(span.nodes)
    return [
        job
        for job in there.values()
        if job.state is not JobState.ENDED and not leaving.isdisjoint(job.generation.members)
    ]


# -------------------------------------------------------------------------------------------------


def _interrupted(job: JobRecord, window: Window) -> str:
    why = "it has no spare" if job.spec.reform else "it has no spare and may not re-form"
    return f"maintenance {window.id}, {between(window.span)}, will interrupt {job.name}: {why}"


def _finding(window: Window, job: str, message: str) -> Finding:
    return Finding(
        component=f"controller/maintenance/{window.id}/{job}",
        condition=MAINTENANCE_INTERRUPTS.name,
        mode=MAINTENANCE_INTERRUPTS.mode,
        severity=Severity.INFO,
        message=message,
        suggested_action=SuggestedAction.WATCH,
        rule=f"cleared by a spare, or by 'everstep maintenance cancel {window.id}'",
    )
