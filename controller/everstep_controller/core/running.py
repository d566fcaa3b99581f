"""What a running generation tells: phases, steps, the layout of its state, and its end."""

from dataclasses import replace

from everstep_controller.core import ending, moving, stages, stalling
from everstep_controller.core.events import (
    CadenceChosen,
    GenerationFinished,
    JobProgressed,
    KeeperChosen,
    LayoutLearned,
    PhaseReached,
)
from everstep_controller.core.facts import Phase
from everstep_controller.core.job_lifecycle import ACTIVE, STEPPING, JobEvent
from everstep_controller.core.stages import ORDER
from everstep_controller.core.state import JobRecord, JobState
from everstep_controller.core.turn import Turn


def phase_reached(turn: Turn, event: PhaseReached) -> None:
    """A node's ranks reached a phase; when all nodes have, so has the job."""
    job = turn.state.jobs.get(event.job)
    node = event.origin.node
    if job is None or event.generation != job.generation or node not in job.members:
        return
    if job.state not in ACTIVE:
        return
    known = job.phases.get(node)
    stages.note(job, event.phase, event.at_ns)
    if known is not None and ORDER[event.phase] <= ORDER[known]:
        stages.overtaken(job, event.phase)
        return
    job.phases[node] = event.phase
    if len(job.phases) == len(job.members) and not _held_back(job, known):
        _enter_phase(turn, job, min(job.phases.values(), key=lambda phase: ORDER[phase]))


def _held_back(job: JobRecord, left: Phase | None) -> bool:
    """Return whether some member is still in the phase that another one has left, or before it."""
    if left is None:
        return False
    phases = job.phases.values()
    return any(phase in phases for phase in Phase if ORDER[phase] <= ORDER[left])


def _enter_phase(turn: Turn, job: JobRecord, phase: Phase) -> None:
    # Journals of older versions have no such times.
    at_ns = min(job.reached_ns.get(phase, turn.now_ns), turn.now_ns)
    if job.state in STEPPING:
        stages.restate(job.ledger, phase, at_ns)
    elif phase is Phase.STARTED:
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
    if job.state in ACTIVE and job.state not in (*STEPPING, JobState.WARMING):
        # It does not tell its phases, or tells them late: its first steps show that it runs.
        job.ledger.begin_steps(stages.steps_begun_ns(job, event.end_ns), warmup=True)
    for offset, (end_ns, stall_ns) in enumerate(zip(event.end_ns, event.stall_ns, strict=True)):
        _count_step(turn, job, event.first_step + offset, end_ns, stall_ns)
    job.snapshots_skipped = max(job.snapshots_skipped, event.snapshots_skipped)
    if event.recoverable_step is not None:
        job.recoverable_step = event.recoverable_step
    if job.state in ACTIVE and job.state is not JobState.RUNNING:
        moving.move(turn, job, JobEvent.PROGRESSED, "all ranks make steps")
    if job.state is JobState.RUNNING:
        stalling.watch(turn, job)


def _count_step(turn: Turn, job: JobRecord, number: int, end_ns: int, stall_ns: int) -> None:
    if job.last_step is not None and number <= job.last_step:
        return
    incident = job.incident
    job.ledger.commit_step(number, end_ns, stall_ns)
    job.snapshot_costs.take(job.cadence, number, stall_ns)
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


def keeper_chosen(turn: Turn, event: KeeperChosen) -> None:
    """Ask this node, too, what it has when the job has to go back."""
    job = turn.state.jobs.get(event.job)
    if job is not None and job.state is not JobState.ENDED and event.node in turn.state.nodes:
        job.holders.setdefault(event.node, 0)


def cadence_chosen(turn: Turn, event: CadenceChosen) -> None:
    """Remember which steps are snapshotted: costs are theirs, and a restart goes on with it."""
    job = turn.state.jobs.get(event.job)
    if job is not None:
        job.cadence = event.cadence


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
