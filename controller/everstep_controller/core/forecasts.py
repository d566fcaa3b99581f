"""What maintenance windows will do to jobs, before they do it, and the words for it."""

from collections.abc import Iterator

from everstep_common.judging.findings import Finding, Severity, SuggestedAction
from everstep_controller.core import outlook
from everstep_controller.core.moving import PLANNED_CAUSES
from everstep_controller.core.state import JobRecord, JobState, OpenFinding, State
from everstep_controller.core.windows import Span, Window, between


def lead_ns(state: State, span: Span) -> int:
    """Return how long before a window its nodes are drained.

    It is the operator's time, or what a planned restart of a job there may take: to wait for a step
    that can be restored, and what the longest one so far took from there.
    """
    # One that waited for nodes, for the end of a window perhaps, tells nothing of restarts.
    restarts = [
        incident.over_ns - incident.onset_ns
        for job in jobs_on(state, span)
        for incident in job.incidents
        if incident.over_ns and incident.cause in PLANNED_CAUSES and incident.plan != "waited"
    ]
    needed_ns = state.settings.planned_ns + max(restarts) if restarts else 0
    return max(state.settings.maintenance_lead_ns, needed_ns)


def of_window(state: State, window: Window) -> Iterator[tuple[str, str]]:
    """Yield each job that a window still concerns, and what it does to it; "" for moving away."""
    if not window.open:
        return
    leaving = {*state.draining, *window.span.nodes}
    for job in jobs_on(state, window.span):
        can_move = bool(outlook.without(state, job, leaving)[0])
        yield job.name, "" if can_move else _interrupted(job, window)


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding for each job that a window will interrupt."""
    for window in state.windows.values():
        for name, interruption in of_window(state, window):
            if interruption:
                yield OpenFinding(_finding(window, name, interruption), window.ordered_ns)


def windows_told(state: State) -> dict[str, str]:
    """Say of each node that has a window which one is next, or which one it is in."""
    waiting = sorted(
        (window for window in state.windows.values() if window.open),
        key=lambda window: window.span.begin_ns,
        reverse=True,
    )
    return {name: window.sentence() for window in waiting for name in window.span.nodes}


def jobs_on(state: State, span: Span) -> list[JobRecord]:
    """Return the jobs that have ranks on nodes of a window."""
    there = frozenset(span.nodes)
    running = (job for job in state.jobs.values() if job.state is not JobState.ENDED)
    return [job for job in running if not there.isdisjoint(job.members)]


# -------------------------------------------------------------------------------------------------


def _interrupted(job: JobRecord, window: Window) -> str:
    why = "it has no spare" if job.reform else "it has no spare and may not re-form"
    return f"maintenance {window.id}, {between(window.span)}, will interrupt {job.name}: {why}"


def _finding(window: Window, job: str, message: str) -> Finding:
    return Finding(
        component=f"controller/maintenance/{window.id}/{job}",
        condition="MaintenanceInterrupts",
        severity=Severity.INFO,
        message=message,
        suggested_action=SuggestedAction.WATCH,
        rule=f"cleared by a spare, or by 'everstep maintenance cancel {window.id}'",
    )
