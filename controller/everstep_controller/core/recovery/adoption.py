"""Adoption of generations that an agent began in the controller's place; others are stopped."""

from dataclasses import replace

from everstep_common.reports import RestartedHere
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.events import RecoveryStepChosen, Reported
from everstep_controller.core.jobs import incidents, orders, restore_point, transition
from everstep_controller.core.jobs.lifecycle import ACTIVE, JobEvent
from everstep_controller.core.model.job import Cause, Generation, JobRecord, JobState, PlanKind
from everstep_controller.core.recovery import blame, start
from everstep_controller.core.turn import Turn


def restarted_here(turn: Turn, event: Reported[RestartedHere]) -> None:
    """Go on with what an agent has begun, as if it had been planned here."""
    job = turn.state.job(event.job)
    if job is None or job.state is JobState.ENDED:
        return
    if not _fits(job, event):
        _cut_branch(job, event)
        _stop_stray(turn, job, event)
        return
    node = event.origin.node
    if job.state in ACTIVE:
        # Its ranks told nothing of why, as when they were lost together with their launcher.
        message = f"generation {job.generation.number} was restarted by the agent of {node}"
        incidents.record_fault(turn, job, _decided_ns(event), Cause.PROCESS, node, message)
    blame.judge_end(turn, job)
    restore_point.note_crash(turn, job)
    _adopt(turn, job, event)
    if job.ending.wanted:
        incidents.record_fault(turn, job, turn.now_ns, Cause.PROCESS, node, job.ending.wanted)


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
    """Say of a generation that a recovery took on, without this word, where it began."""
    report = event.report
    known = any(point.generation == report.generation for point in job.lineage.branch)
    if known and report.generation == job.generation.number and report.restore_step is not None:
        job.lineage.branch = [
            replace(point, through_step=report.restore_step)
            if point.generation == report.restore_generation and point.through_step is None
            else point
            for point in job.lineage.branch
        ]


def _stop_stray(turn: Turn, job: JobRecord, event: Reported[RestartedHere]) -> None:
    """Stop one that was begun on a node that had been given up; the job is somewhere else."""
    launcher = job.launchers.get(event.origin.node)
    if launcher is None or event.report.generation >= job.generation.number:
        return
    launcher.stale_generation = max(launcher.stale_generation, event.report.generation)
    node = event.origin.node
    turn.actions.append(orders.stop(turn.state, job, node, launcher.stale_generation))


def _adopt(turn: Turn, job: JobRecord, event: Reported[RestartedHere]) -> None:
    report = event.report
    node = event.origin.node
    job.recovery.plan = PlanKind.IN_PLACE
    job.recovery.restarts += 1
    job.recovery.restarts_without_progress += 1
    if job.incident is not None:
        job.incident.plan, job.incident.step_restored = job.recovery.plan, report.restore_step
        blame.note_plan_tried(job, report.restore_step)
    left = job.generation.own_restarts - (report.generation - job.generation.number)
    # On the same node, with the same address: as if it had been planned here.
    job.generation = Generation(
        report.generation,
        [node],
        master_address=job.generation.master_address,
        master_port=job.generation.master_port,
        own_restarts=left,
        renew=job.generation.renew,
    )
    job.lineage.holders[node] = job.generation.number
    job.launchers[node].stale_generation = 0
    start.rebase(
        job,
        RecoveryStepChosen(
            job=job.name,
            generation=job.generation.number,
            step=report.restore_step,
            step_generation=report.restore_generation,
        ),
    )
    job.generation.start_reason = report.reason
    job.lineage.started = True
    job.ledger.enter(_decided_ns(event), transition.category(job, Category.DRAIN))
    job.ledger.enter(event.at_ns, transition.category(job, Category.ENV))
    transition.move_job(turn, job, JobEvent.ADOPTED, f"adopted: {report.reason}")
