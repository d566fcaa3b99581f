"""What a running generation tells: phases, steps, the layout of its state, and its end."""

from dataclasses import replace

from everstep_controller.core import ending, moving
from everstep_controller.core.events import (
    GenerationFinished,
    JobProgressed,
    LayoutLearned,
    PhaseReached,
)
from everstep_controller.core.facts import Phase
from everstep_controller.core.job_lifecycle import ACTIVE, JobEvent
from everstep_controller.core.state import JobRecord, JobState
from everstep_controller.core.turn import Turn

_ORDER = {Phase.STARTED: 0, Phase.ATTACHED: 1, Phase.RESTORED: 2}


def phase_reached(turn: Turn, event: PhaseReached) -> None:
    """A node's ranks reached a phase; when all nodes have, so has the job."""
    job = turn.state.jobs.get(event.job)
    node = event.origin.node
    if job is None or event.generation != job.generation or node not in job.members:
        return
    if job.state not in ACTIVE:
        return
    before = _common_phase(job)
    known = job.phases.get(node)
    if known is None or _ORDER[event.phase] > _ORDER[known]:
        job.phases[node] = event.phase
    job.phase_ns = max(job.phase_ns, event.at_ns)
    reached = _common_phase(job)
    if reached is not before and reached is not None:
        _enter_phase(turn, job, reached)


def _common_phase(job: JobRecord) -> Phase | None:
    phases = [job.phases.get(member) for member in job.members]
    reached = [phase for phase in phases if phase is not None]
    if len(reached) < len(phases):
        return None
    return min(reached, key=lambda phase: _ORDER[phase], default=None)


def _enter_phase(turn: Turn, job: JobRecord, phase: Phase) -> None:
    at_ns, job.phase_ns = min(job.phase_ns, turn.now_ns), 0
    if job.state is JobState.RUNNING:
        return
    if phase is Phase.STARTED:
        job.ledger.enter(at_ns, moving.category(job, "inc.init"))
    elif phase is Phase.ATTACHED:
        moving.move(turn, job, JobEvent.ATTACHED, "all ranks have called in")
        job.ledger.enter(at_ns, moving.category(job, "inc.restore"))
    else:
        moving.move(turn, job, JobEvent.RESTORED, "all ranks have their state")
        job.ledger.begin_steps(at_ns, warmup=True)


def progressed(turn: Turn, event: JobProgressed) -> None:
    """Count steps that all ranks completed."""
    job = turn.state.jobs.get(event.job)
    if job is None or event.generation != job.generation or job.state is JobState.ENDED:
        return
    if job.state in ACTIVE and job.state not in (JobState.RUNNING, JobState.WARMING):
        # A job that does not tell its phases: its first steps show that it runs.
        job.ledger.begin_steps(job.ledger.segments[-1].start_ns, warmup=True)
    for offset, (end_ns, stall_ns) in enumerate(zip(event.end_ns, event.stall_ns, strict=True)):
        _count_step(turn, job, event.first_step + offset, end_ns, stall_ns)
    job.snapshots_skipped = max(job.snapshots_skipped, event.snapshots_skipped)
    if event.recoverable_step is not None:
        job.recoverable_step = event.recoverable_step
    if job.state in ACTIVE and job.state is not JobState.RUNNING:
        moving.move(turn, job, JobEvent.PROGRESSED, f"step {job.last_step} is done")


def _count_step(turn: Turn, job: JobRecord, number: int, end_ns: int, stall_ns: int) -> None:
    if job.last_step is not None and number <= job.last_step:
        return
    incident = job.incident
    job.ledger.commit_step(number, end_ns, stall_ns)
    job.last_step = number
    is_new = incident is None or incident.step_before is None or number > incident.step_before
    if not is_new:
        return
    job.restarts_without_progress = 0
    if incident is not None and job.state is JobState.STOPPING:
        # Told late, but made before the fault: going on after it repeats nothing.
        incident.step_before = number
    elif incident is not None:
        incident.over_ns, job.plan = end_ns, ""
        lasted_s = (end_ns - incident.onset_ns) / 1e9
        turn.announce(
            job.name,
            "IncidentOver",
            f"{job.name} is at new step {number}, {lasted_s:.2f} s after: {incident.message}",
        )


def layout_learned(turn: Turn, event: LayoutLearned) -> None:
    """Remember which parts a whole state of this generation has."""
    job = turn.state.jobs.get(event.job)
    if job is not None:
        job.branch = [
            replace(point, layouts=event.layouts, shards=event.shards or point.shards)
            if point.generation == event.generation
            else point
            for point in job.branch
        ]


def generation_finished(turn: Turn, event: GenerationFinished) -> None:
    """All ranks of a node ended well; when those of all nodes have, the job is over."""
    job = turn.state.jobs.get(event.job)
    node = event.origin.node
    if job is None or event.generation != job.generation or job.state not in ACTIVE:
        return
    if node in job.members and node not in job.finished:
        job.finished.append(node)
    if len(job.finished) == len(job.members):
        ending.finish(turn, job, _all_well(job))


def _all_well(job: JobRecord) -> str:
    after = "" if job.last_step is None else f" after step {job.last_step}"
    return f"all ranks ended well{after}"
