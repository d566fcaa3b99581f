"""Admission: which launchers take part in a job, and what a new job begins with."""

from everstep_common import reports
from everstep_common.reports import LauncherJoined
from everstep_controller.core.accounting.categories import Category
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.events import Reported
from everstep_controller.core.jobs import (
    adoption,
    ending,
    identity,
    incidents,
    lost_jobs,
    membership,
    orders,
    stored_state,
)
from everstep_controller.core.jobs.lifecycle import ACTIVE
from everstep_controller.core.model.job import (
    Cause,
    JobFault,
    JobRecord,
    JobSpec,
    JobState,
    Launcher,
    OrphanedLauncher,
)
from everstep_controller.core.model.state import State, add_job, note_node
from everstep_controller.core.nodes.claims import why_ineligible
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, Turn

# A job in these states runs nothing, and began from what nobody may want any more.
_REPLACEABLE = (
    JobState.FORMING,
    JobState.WAITING_CAPACITY,
    JobState.BACKING_OFF,
    JobState.WAITING_STATE,
)


def launcher_joined(turn: Turn, event: Reported[LauncherJoined]) -> None:
    """A launcher asks to take part in a job."""
    turn.state.joining.append(event)
    turn.mark_node(event.origin.node)


def reconcile_launchers(turn: Reconciliation) -> None:
    """Let the launchers that ask for it take part in their jobs, or refuse them."""
    state = turn.state
    joining, state.joining = state.joining, []
    orphaned, state.orphaned = state.orphaned, []
    for launcher in orphaned:
        identity.end_orphaned_launcher(turn, launcher)
    for event in joining:
        job_id, node = event.report.job_id, event.origin.node
        if identity.is_over(state, event.job, job_id):
            identity.end_orphaned_launcher(turn, OrphanedLauncher(event.job, job_id, node))
        else:
            _admit(turn, event)


def _admit(turn: Reconciliation, event: Reported[LauncherJoined]) -> None:
    """Let a launcher take part in the job of its name, a new one if need be, or refuse it."""
    state, report, node = turn.state, event.report, event.origin.node
    if refusal := stored_state.refusal(state, _forming(state, event), event):
        identity.refuse_launcher(turn, event.job, node, refusal)
        return
    job = _job_of(turn, event)
    state.nodes[node].jobs.refusals.pop(event.job, None)
    if refusal := _refusal(job, event):
        identity.refuse_launcher(turn, event.job, node, refusal)
        return
    if job.state is JobState.FORMING and not job.generation.members:
        _begin_from(turn, job, event)
    if not job.lineage.started:
        _learn_what_is_lost(turn, job, event)
    current = node in job.generation.members and report.running_generation == job.generation.number
    stale_generation = 0 if current else report.running_generation
    kept = why_ineligible(state, state.nodes[node])
    job.overdue.pop(node, None)
    if report.job_id != job.id:
        job.term = state.term  # one that did not hear of the end of its job says whose it is
    job.launchers[node] = Launcher(report.free_port, stale_generation, kept)
    note_node(state, node, job)
    if not current and _counts_on(job, node):
        message = f"the launcher on {node} was replaced"
        incidents.judge_fault(turn, job, JobFault(event.at_ns, Cause.LAUNCHER, node, message))
    turn.order(*orders.for_member(state, job, node))
    turn.mark_node(node)
    turn.mark_job(job.id)


def _learn_what_is_lost(
    turn: Reconciliation, job: JobRecord, event: Reported[LauncherJoined]
) -> None:
    """Have a job that has not begun here be one that was lost, if a launcher says so.

    Its id, or the generation that runs there, is of another journal.
    """
    report = event.report
    if identity.told_id(turn.state, event):
        job.first_number = max(job.first_number, lost_jobs.first_number(turn.state))
    if job.first_number and report.running_generation > job.generation.number:
        membership.adopt_generation(turn, job, report.running_generation)
        job.lineage.skipped, job.lineage.root = list(report.skipped), report.lineage_id


def _forming(state: State, event: Reported[LauncherJoined]) -> JobRecord | None:
    """Return the job of its name that a launcher finds; None where it begins a new one."""
    job = identity.job_told(state, event.job, event.report.job_id) or state.job(event.job)
    if job is not None and (identity.is_next(job, event) or job.state is JobState.ENDED):
        return identity.job_after(state, job)
    return job


def _job_of(turn: Reconciliation, event: Reported[LauncherJoined]) -> JobRecord:
    """Return the job that a launcher takes part in, a new one if need be."""
    state, name = turn.state, event.job
    job = identity.job_told(state, name, event.report.job_id)
    if job is None and name in state.names:
        job = state.newest(name)
    if job is not None and _left_behind(job, event):
        ending.end_replaced(turn, job)
    if job is None or (job.state is JobState.ENDED and event.origin.node not in job.launchers):
        return _new_job(turn, event, job)
    if identity.is_next(job, event):
        return identity.job_after(state, job) or _new_job(turn, event, job)
    return job


def _counts_on(job: JobRecord, node: str) -> bool:
    """Return whether the plan takes for granted that processes run on this node."""
    return (
        job.state in ACTIVE
        and node in job.generation.phases
        and node not in job.generation.finished
    )


def _left_behind(job: JobRecord, event: Reported[LauncherJoined]) -> bool:
    """Return whether all launchers of a job are gone, and its user begins it anew in some way."""
    report = event.report
    if job.launchers or report.running_generation or not identity.same_owner(job, event):
        return False
    if job.state is JobState.CLOSING and not job.ending.done:
        return True  # or it would end with the other one, whose last step memory has anyway
    if job.state not in _REPLACEABLE:
        return False
    # A wish to begin afresh counts until the job has run: what it began from is past after that.
    fresh = report.fresh or (job.lineage.fresh and not job.lineage.started)
    return fresh or _spec_of(event) != job.spec


def _new_job(
    turn: Reconciliation, event: Reported[LauncherJoined], before: JobRecord | None
) -> JobRecord:
    report, told = event.report, identity.told_id(turn.state, event)
    job = JobRecord(
        id=told or identity.new_id(turn.state, event.job),
        name=event.job,
        spec=_spec_of(event),
        ledger=Ledger(turn.now_ns),
        since_ns=turn.now_ns,
        reason=_first_reason(event.report),
        first_number=lost_jobs.first_number(turn.state) if told else 0,
    )
    kept = turn.state.lost_ends.pop(job.id, None)
    if kept is not None:
        job.ending.remembered, job.ending.remembered_by = kept.told, kept.told_by
        job.ending.remembered_term, job.ending.newest_seen = kept.seen_term, kept.newest_seen
    add_job(turn.state, job)
    if before is not None and before.state is not JobState.ENDED:
        identity.await_end(turn, job, before)
    else:
        identity.begin(turn, job, before)
    _adopt(turn, job, report)
    job.ledger.enter(turn.now_ns, Category.INIT_QUEUE)
    return job


def _first_reason(report: LauncherJoined) -> str:
    """Return what a job waits for when it is new, as a sentence for its terminals."""
    least, most = report.nodes_min, report.nodes_max
    if most == 1:
        return "waiting for the controller to start it"
    return f"waiting for {most} nodes" if least == most else f"waiting for {least} to {most} nodes"


def _adopt(turn: Reconciliation, job: JobRecord, report: LauncherJoined) -> None:
    """Go on from the generation that a job has come to which is new here, if it is not really new.

    It runs on; or its ranks are gone, and agents have told of it while the journal was rebuilt.
    """
    lost, world_size = turn.state.lost_jobs.pop(job.name, None), 0
    newest = report.running_generation
    if lost is not None and lost.id == job.id and lost.generation.number > newest:
        newest, world_size = lost.generation.number, lost.generation.world_size
    membership.adopt_generation(turn, job, newest, world_size)
    if lost is not None and lost.began_from is not None and lost.generation.number == newest:
        adoption.note_beginning(job, newest, lost.began_from)
    if newest:
        job.lineage.skipped = list(report.skipped)
        job.lineage.root = report.lineage_id


def _begin_from(turn: Reconciliation, job: JobRecord, event: Reported[LauncherJoined]) -> None:
    """Find out what a job that has not started yet begins with."""
    report = event.report
    lineage = job.lineage
    lineage.continued = lineage.continued or report.continues
    lineage.stored_doubt = lineage.stored_doubt or ("" if report.continues else report.stored_doubt)
    job.generation.number = max(job.generation.number, report.stored_generation)
    if job.after:
        identity.note_wish(job, report)
        return
    if report.fresh and not report.running_generation and not job.lineage.fresh:
        identity.start_fresh(turn, job)
    identity.storage_seen(job, report.latest, stored_state.branch_of(report))


def _refusal(job: JobRecord, event: Reported[LauncherJoined]) -> str:
    report = event.report
    if report.uid != job.spec.uid:
        return f"job {job.name} belongs to another user; choose another --job name"
    if report.token_sha256 != job.spec.token_sha256:
        return (
            f"wrong token for job {job.name}: start every launcher with the same "
            "EVERSTEP_JOB_TOKEN or --token-file, or choose another --job name"
        )
    if report.storage != job.spec.storage:
        return (
            f"job {job.name} is brought to storage otherwise: start every launcher with the same "
            "--persist options"
        )
    if report.program and job.spec.program and report.program != job.spec.program:
        return (
            f"job {job.name} runs {job.spec.program}, and this is {report.program}: choose another "
            "--job name for another job"
        )
    if _shape(_spec_of(event)) != _shape(job.spec):
        return (
            f"job {job.name} runs with --nnodes {job.spec.nodes_min}:{job.spec.nodes_max} "
            f"--nproc-per-node {job.spec.processes_per_node}{_replicas(job)}: start every launcher "
            "with these options"
        )
    return ""


def _replicas(job: JobRecord) -> str:
    return f" --nodes-per-replica {job.spec.replica_nodes}" if job.spec.replica_nodes > 1 else ""


def _shape(spec: JobSpec) -> tuple[int, int, int, bool, int]:
    """Return what all launchers of a job have to agree on."""
    nodes = (spec.nodes_min, spec.nodes_max)
    return (*nodes, spec.processes_per_node, spec.reform, spec.replica_nodes)


def _spec_of(event: Reported[LauncherJoined]) -> JobSpec:
    report = event.report
    return JobSpec(
        uid=report.uid,
        token_sha256=report.token_sha256,
        nodes_min=report.nodes_min,
        nodes_max=report.nodes_max,
        processes_per_node=report.processes_per_node,
        reform=report.reform,
        restarts_max=report.restarts_max,
        replica_nodes=report.replica_nodes,
        program=report.program,
        queue=report.queue,
        account=report.account,
        storage=report.storage,
        snapshot_every_min=report.snapshot_every_min,
        snapshot_every_max=report.snapshot_every_max,
    )


HANDLERS: Handlers = {
    reports.LauncherJoined: launcher_joined,
}
