"""What planned work will do to a job, before it is done: where it can go, and the words for it."""

from everstep_controller.core import orders, planning
from everstep_controller.core.state import JobRecord, Planned, State


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
