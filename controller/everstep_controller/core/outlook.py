"""What planned work will do to a job, before it is done: where it can go, and the words for it."""

from everstep_controller.core import orders, planning
from everstep_controller.core.job_lifecycle import ACTIVE, STEPPING
from everstep_controller.core.state import (
    FLEET,
    MAINTENANCE,
    JobRecord,
    JobState,
    Planned,
    State,
)
from everstep_controller.core.windows import holding


def without(state: State, job: JobRecord, draining: set[str]) -> tuple[list[str], str]:
    """Return the members and the kind of plan that leave nodes; no member if that cannot be."""
    able = [node for node in planning.candidates(state, job) if node.name not in draining]
    return planning.seated(state, job, able)


def forecast(state: State, job: JobRecord, node: str) -> str:
    """Say what draining a node will do to a job that has ranks there."""
    members, kind = without(state, job, {node})
    if not members:
        may = "it has no spare" if job.reform else "it has no spare and may not re-form"
        return f"{job.name} stays on {node} until another node joins: {may}"
    new = ", ".join(name for name in members if name not in job.members)
    how = f"{new} takes its place" if kind == "spare" else f"on {len(members)} nodes"
    if not orders.has_state(job):
        return f"{job.name} is stopped at once, and starts again ({how}): it makes no snapshots"
    chosen = None if job.planned is None else job.planned.after_step
    step = "a step that is recoverable" if chosen is None else f"step {chosen}"
    return f"{job.name} goes on without {node} after {step}: {how}"


def sentence(job: JobRecord, wish: Planned) -> str:
    """Say what is planned."""
    step = "a step boundary" if wish.after_step is None else f"the boundary after {wish.after_step}"
    lossless = "" if orders.has_state(job) else ", without a snapshot, for it makes none"
    return f"a restart at {step} is planned{lossless} ({wish.kind}, {wish.by}): {wish.reason}"


def pending(state: State, job: JobRecord) -> Planned | None:
    """Return what is planned of a job, or a drain that it cannot follow yet; None for nothing."""
    leaving = drained(state, job)
    if job.planned is not None or not leaving or job.state not in ACTIVE or job.done:
        return job.planned
    claim = state.nodes[leaving[0]].claims[0]
    reason = f"{', '.join(leaving)} is drained: {claim.reason}"
    return Planned("drain", claim.owner, reason, job.generation, claim.since_ns)


def drained(state: State, job: JobRecord) -> list[str]:
    """Return the members that a job is to leave."""
    known = (state.nodes.get(name) for name in job.members)
    return sorted(node.name for node in known if node is not None and node.draining)


def waits_for(state: State, job: JobRecord, wish: Planned) -> str:
    """Say what planned work still waits for, and how far that is."""
    if job.state is JobState.STOPPING:
        return "its processes are ending"
    subject = next((name for name in (job.name, FLEET) if name in state.paused), "")
    if subject:
        resume = "everstep resume" + (f" {subject}" if subject != FLEET else "")
        return f"automation is paused: {state.paused[subject]}; to go on: {resume}"
    if wish is not job.planned:
        return forecast(state, job, drained(state, job)[0])
    if job.state not in STEPPING or wish.after_step is None:
        return f"{job.name} is {job.state.value}: the step is chosen when it has made some"
    if job.last_step is None or job.last_step < wish.after_step:
        at = "none is made yet" if job.last_step is None else f"the newest is {job.last_step}"
        return f"for step {wish.after_step}, {at}"
    newest = "none is" if job.recoverable_step is None else f"the newest is {job.recoverable_step}"
    return f"until step {wish.after_step} can be restored, {newest}"


def undo(state: State, job: JobRecord, wish: Planned) -> str:
    """Return the command that takes planned work back."""
    if wish.kind == "restart":
        return f"everstep job {job.name} restart --cancel"
    if wish.kind == "growth":
        return f"everstep pause {job.name} --reason TEXT"
    node = next(iter(drained(state, job)), "NODE")
    window = holding(state.windows.values(), node)
    known = state.nodes.get(node)
    if window is not None and known is not None and known.claim_of(MAINTENANCE) is not None:
        return f"everstep maintenance cancel {window.id}"
    return f"everstep release {node}"
