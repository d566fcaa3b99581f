"""Start of a generation: one that was planned, or that an agent began in the controller's place."""

from dataclasses import replace

from everstep_common import reports
from everstep_common.reports import RestartedHere
from everstep_controller.core import events
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.events import RecoveryStepChosen, Reported
from everstep_controller.core.fleet.incidents import open_incident
from everstep_controller.core.jobs import (
    adoption,
    devices,
    identity,
    incidents,
    orders,
    restore_point,
    transition,
)
from everstep_controller.core.jobs.lifecycle import ACTIVE, JobEvent
from everstep_controller.core.jobs.transition import move_job
from everstep_controller.core.model.job import (
    Cause,
    Generation,
    JobFault,
    JobRecord,
    JobState,
    Members,
    PlanKind,
    PlannedKind,
)
from everstep_controller.core.model.snapshots import BranchPoint
from everstep_controller.core.model.state import State
from everstep_controller.core.nodes import agent_identity
from everstep_controller.core.recovery import blame, placement, planning
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn

# A point has the names of all parts of a state, 3 MB for 100,000 ranks, and each fault adds one.
_NAMED_POINTS_MAX = 8
_POINTS_MAX = 1024

# The processes of its newest generation have not been started, or are stopped.
_UNBEGUN = frozenset(
    {
        JobState.FORMING,
        JobState.REPLANNING,
        JobState.WAITING_CAPACITY,
        JobState.BACKING_OFF,
        JobState.WAITING_STATE,
        JobState.STOPPING,
    }
)


def step_chosen(turn: Turn, event: RecoveryStepChosen) -> None:
    """Take the word of the catalogue where a generation that was planned begins."""
    job = turn.state.job(event.job)
    if job is not None and event.generation == job.generation.number:
        job.news.choice = event


def restarted_here(turn: Turn, event: Reported[RestartedHere]) -> None:
    """Take the word of an agent that it has begun a generation on its own."""
    job = turn.state.job(event.job)
    if job is None:
        agent_identity.note_lost_restart(turn.state, event)
    elif job.state is not JobState.ENDED:
        job.news.restarted = event


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Follow what the catalogue, or an agent on its own, says of a job's next generation."""
    if job.news.restarted is not None:
        _follow_agent(turn, job, job.news.restarted)
    if job.news.choice is not None and _asked(turn, job):
        _start_planned(turn, job, job.news.choice)


# --- where it was planned ------------------------------------------------------------------------


def _start_planned(turn: Reconciliation, job: JobRecord, event: RecoveryStepChosen) -> None:
    """Start the generation that was planned, at the step that the catalogue found."""
    event = identity.chosen_step_or_fresh(turn.state, job, event, turn.now_ns)
    if event.lost:
        planning.wait_for_state(turn, job, event.lost)
        return
    job.generation.unreachable = ""
    turn.drop_timer(f"{TimerKind.RETRY}/{job.id}")
    _count_restart(turn.state, job, event.step)
    rebase(job, event)
    job.generation.own_restarts = _own_restarts(turn.state, job)
    # Even if a fault caused this generation: a restart that was ordered is done with it.
    job.generation.renew = job.planned is not None and job.planned.kind is PlannedKind.RESTART
    _choose_rendezvous(turn.state, job)
    job.generation.start_reason = _start_reason(job, event, turn.now_ns)
    job.lineage.started, job.term = True, turn.state.term
    move_job(turn, job, JobEvent.STEP_CHOSEN, job.generation.start_reason)


def _count_restart(state: State, job: JobRecord, step: int | None) -> None:
    incident = open_incident(state, job)
    if incident is not None:
        job.recovery.restarts += 1
        job.recovery.restarts_without_progress += blame.was_attempt(job)
        incident.plan, incident.step_restored = job.recovery.plan, step
        blame.note_plan_tried(job, step)


def _choose_rendezvous(state: State, job: JobRecord) -> None:
    """Have ranks meet on a trusted node: some may have become suspect since the plan was made."""
    trust = {name: planning.distrust(state.nodes[name]) for name in job.generation.members}
    job.generation.members = Members(placement.rendezvous_first(job.generation.members, trust))
    first = job.generation.members[0]
    job.generation.master_address = state.nodes[first].spec.host
    job.generation.master_port = job.launchers[first].free_port


def _asked(turn: Turn, job: JobRecord) -> bool:
    """Return whether the plan still stands that the catalogue was asked for."""
    if job.state is JobState.REPLANNING:
        # A member may be gone while no other agent is back yet: then a new plan is to be made.
        return job.generation.cause is None
    # A member may have gone since: then the catalogue is asked again, or the job waits for nodes.
    nodes = [turn.state.nodes[name] for name in job.generation.members]
    there = all(
        node.fit and node.name in job.launchers and devices.has_room(turn.state, node, job)
        for node in nodes
    )
    # Ranks of a generation that the journal had lost may have been found on another node since, and
    # are stopped first. Of a node that is away nobody would ever hear that they are.
    older = [name for name, one in job.launchers.items() if one.stale_generation]
    stopped = not any(turn.state.nodes[name].liveness.connected for name in older)
    waits = job.state is JobState.WAITING_STATE and not turn.paused(job.name)
    return waits and there and stopped


def _own_restarts(state: State, job: JobRecord) -> int:
    """Return how often an agent may restart the job without the controller: only if it sees all."""
    alone = len(job.generation.members) == 1
    return min(state.settings.autonomous_restarts_max, job.spec.restarts_max) if alone else 0


def rebase(job: JobRecord, event: RecoveryStepChosen) -> None:
    """Cut off the branch behind the restored step, and begin the new generation's."""
    last_good = -1 if event.step is None else event.step
    origin = event.step_generation
    kept = [point for point in job.lineage.branch if point.generation < origin]
    kept += [
        replace(point, through_step=last_good)
        for point in job.lineage.branch
        if point.generation == origin
    ]
    job.lineage.branch = _bounded([*kept, BranchPoint(job.generation.number, None, job.world_size)])
    if event.step is not None:
        # Without a snapshot the script may have one of its own: its first step will show.
        job.ledger.roll_back(last_good)
    generation = job.generation
    generation.restore_step, generation.sources = event.step, event.sources
    generation.restore_stored = event.stored
    job.lineage.restored = None if event.step is None else (origin, event.step)
    job.lineage.adopted = None
    job.generation.cause = None
    job.lineage.last_step = event.step
    if event.step is not None:
        # What was recoverable behind that step is cut off, and must not pass for what comes anew;
        # and of that step itself nobody may have told before.
        job.lineage.recoverable_step = event.step


def _bounded(branch: list[BranchPoint]) -> list[BranchPoint]:
    """Return the newest points, the older ones of them without the names of their parts.

    Memory has the newest generations alone, and a step in storage is whole by its own word. Without
    names a step is whole when every rank has a copy.
    """
    points, named = branch[-_POINTS_MAX:], _NAMED_POINTS_MAX
    older = (replace(one, layouts=()) if one.layouts else one for one in points[:-named])
    return [*older, *points[-named:]]


def _start_reason(job: JobRecord, event: RecoveryStepChosen, now_ns: int) -> str:
    first = not job.lineage.started
    if event.step is None:
        anew = job.lineage.begun if first else ""
        return f"generation {job.generation.number} {anew or _without_snapshot(job, event.reason)}"
    if first and job.lineage.continues is not None:
        job.lineage.begun = identity.continues_sentence(job, event, now_ns)
        return f"generation {job.generation.number} {job.lineage.begun}"
    plan = job.recovery.plan
    how = "" if plan in (None, PlanKind.FIRST) else f" ({str(plan).replace('_', ' ')})"
    plan_text = f"generation {job.generation.number}{how}"
    return (
        f"{plan_text} continues after step {event.step}{identity.without_data(job)}: {event.reason}"
    )


def _without_snapshot(job: JobRecord, why: str) -> str:
    """Return how a generation begins for which there is no snapshot; its script may have one."""
    undecided = restore_point.undecided_step(job) is not None
    shows = "; its first step will show where the script goes on by itself" if undecided else ""
    return f"starts without a snapshot: {why}{shows}"


# --- where an agent began it in the controller's place -------------------------------------------


def _follow_agent(turn: Reconciliation, job: JobRecord, event: Reported[RestartedHere]) -> None:
    """Go on with what an agent has begun, as if it had been planned here; stop what is astray."""
    if not _fits(job, event):
        _cut_branch(job, event)
        _stop_stray(turn, job, event)
        return
    node = event.origin.node
    if job.state in ACTIVE:
        # Its ranks told nothing of why, as when they were lost together with their launcher.
        message = f"generation {job.generation.number} was restarted by the agent of {node}"
        fault = JobFault(_decided_ns(event), Cause.PROCESS, node, message)
        incidents.judge_fault(turn, job, fault)
    blame.judge_end(turn, job)
    restore_point.note_crash(turn, job)
    _adopt(turn, job, event)
    if job.ending.wanted:
        fault = JobFault(turn.now_ns, Cause.PROCESS, node, job.ending.wanted)
        incidents.judge_fault(turn, job, fault)


def _fits(job: JobRecord, event: Reported[RestartedHere]) -> bool:
    report = event.report
    allowed = range(
        job.generation.number + 1, job.generation.number + job.generation.own_restarts + 1
    )
    return (
        job.generation.members == [event.origin.node]
        and report.after_generation == job.generation.number
        and report.generation in allowed
        and (job.state in ACTIVE or job.state is JobState.STOPPING)
    )


def _decided_ns(event: Reported[RestartedHere]) -> int:
    """Return when the agent decided it; both times are of one clock of its node."""
    return event.at_ns - (event.report.at_boot_ns - event.report.decided_boot_ns)


def _cut_branch(job: JobRecord, event: Reported[RestartedHere]) -> None:
    """Say of a generation that a recovery took on, without this word, where it began.

    One that was begun after all that agents had told then is on the branch as well: nothing else
    has begun since, and its agent has freed what was before it.
    """
    report = event.report
    if job.lineage.branch and _is_allowed(job, report):
        adoption.follow_own_generation(job, report.after_generation, report.generation)
    if report.restore_step is not None:
        key = report.restore_generation, report.restore_step
        adoption.note_beginning(job, report.generation, key)


def _is_allowed(job: JobRecord, report: RestartedHere) -> bool:
    """Return whether an agent may have begun a generation where the job has begun no later one."""
    newest = job.generation.number + job.generation.own_restarts
    return job.state in _UNBEGUN and report.after_generation < report.generation <= newest


def _stop_stray(turn: Reconciliation, job: JobRecord, event: Reported[RestartedHere]) -> None:
    """Stop one that was begun on a node that had been given up; the job is somewhere else."""
    launcher = job.launchers.get(event.origin.node)
    if launcher is None or event.report.generation >= job.generation.number:
        return
    launcher.stale_generation = max(launcher.stale_generation, event.report.generation)
    node = event.origin.node
    turn.order(orders.stop(turn.state, job, node, launcher.stale_generation))


def _adopt(turn: Reconciliation, job: JobRecord, event: Reported[RestartedHere]) -> None:
    report = event.report
    node = event.origin.node
    turn.drop_timer(f"{TimerKind.BACKOFF}/{job.id}")  # its agent has not waited
    job.recovery.plan = PlanKind.IN_PLACE
    job.recovery.restarts += 1
    job.recovery.restarts_without_progress += blame.was_attempt(job)
    incident = open_incident(turn.state, job)
    if incident is not None:
        incident.plan, incident.step_restored = job.recovery.plan, report.restore_step
        blame.note_plan_tried(job, report.restore_step)
    left = job.generation.own_restarts - (report.generation - job.generation.number)
    # On the same node, with the same address: as if it had been planned here.
    job.generation = Generation(
        report.generation,
        Members([node]),
        master_address=job.generation.master_address,
        master_port=job.generation.master_port,
        own_restarts=left,
        renew=job.generation.renew,
    )
    job.lineage.holders[node] = job.generation.number
    job.launchers[node].stale_generation = 0
    rebase(
        job,
        RecoveryStepChosen(
            job=job.name,
            generation=job.generation.number,
            step=report.restore_step,
            step_generation=report.restore_generation,
        ),
    )
    job.generation.start_reason = report.reason
    job.lineage.started, job.term = True, turn.state.term
    job.ledger.enter(_decided_ns(event), transition.category(turn.state, job, Category.DRAIN))
    job.ledger.enter(event.at_ns, transition.category(turn.state, job, Category.ENV))
    transition.move_job(turn, job, JobEvent.ADOPTED, f"adopted: {report.reason}")


HANDLERS: Handlers = {
    reports.RestartedHere: restarted_here,
    events.RecoveryStepChosen: step_chosen,
}
