"""Job identity: ids, who has a name, and what the next job of a name continues.

A job has an id, which its launchers learn and say again whenever they come back. Its name belongs
to the newest job that has begun under it. A job that is started while the one before it still ends
waits for that end. It continues the whole branch of the one before it, or nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from everstep_common.job_ids import job_id_of, number_of_job
from everstep_common.reports import JobOnNode, LauncherJoined, StoredStep
from everstep_controller.core.events import RecoveryStepChosen, Reported
from everstep_controller.core.fleet.incidents import forget_incidents
from everstep_controller.core.jobs import lost_ends, orders, restore_point
from everstep_controller.core.jobs.stored_state import branch_of
from everstep_controller.core.model.job import (
    JobRecord,
    JobState,
    Lineage,
    OrphanedLauncher,
    Outcome,
)
from everstep_controller.core.model.snapshots import BranchPoint, Predecessor
from everstep_controller.core.model.state import State, jobs_of_name, note_node, remove_job
from everstep_controller.core.registry import Timers, job_timers
from everstep_controller.core.turn import Reconciliation, TimerKind

# Number of earlier jobs of one name that are remembered: people look up how they ended.
_ENDED_MAX = 8

# Besides the times that its nodes may take to stop, and its last step to storage, for an end of the
# job before this one that needed both to the last second.
_SLACK_NS = 30_000_000_000

# Number of nodes that a sentence names.
_NAMED_MAX = 3

_S = 1_000_000_000


def told_id(state: State, event: Reported[LauncherJoined]) -> str:
    """Return the id that a job has which is new here alone: another journal has given it."""
    name, lost = event.job, state.lost_jobs.get(event.job)
    told = event.report.job_id or (lost.id if lost is not None else "")
    known = number_of_job(told, name) is None or told in state.jobs
    return "" if known or lost_ends.end_of(state, name, told) is not None else told


def new_id(state: State, name: str) -> str:
    """Return the id of a new job."""
    lost, _ = lost_ends.newest_of_name(state, name)
    number = max(state.event_count, _newest_number(state, name) + 1, lost + 1)
    while job_id_of(name, number) in state.names:  # there is a job of this very name
        number += 1
    return job_id_of(name, number)


def job_told(state: State, name: str, job_id: str) -> JobRecord | None:
    """Return the job of this name that a launcher says it is of, if it is known."""
    job = state.jobs.get(job_id)
    return job if job is not None and job.name == name else None


def is_over(state: State, name: str, job_id: str) -> bool:
    """Return whether the job of this id is over, by the word of a launcher that says it is of it.

    One that is not known here is over if it was forgotten, if agents remember its end, or if it is
    older than the newest of its name that has begun; one that is newer is not, for this journal is
    older than it.
    """
    job = job_told(state, name, job_id)
    if job is not None:
        return job.state is JobState.ENDED
    number, newest = number_of_job(job_id, name), state.job(name)
    begun = newest is not None and newest.lineage.started
    if lost_ends.end_of(state, name, job_id) is not None:
        return True
    return number is not None and (
        number <= state.forgotten_through or (begun and number < _newest_number(state, name))
    )


def _newest_number(state: State, name: str) -> int:
    newest = state.job(name)
    return -1 if newest is None else number_of_job(newest.id, name) or 0


def end_orphaned_launcher(turn: Reconciliation, orphan: OrphanedLauncher) -> None:
    """Tell a launcher that its job is over; what the node holds of it is kept if it is wanted."""
    name, node = orphan.job, orphan.node
    order = orders.orphan_end(turn.state, name, node, orphan.job_id)
    turn.announce(
        name, "LauncherOrphaned", f"the launcher on {node} has no job any more: {order.reason}"
    )
    turn.order(order)
    newest = turn.state.job(name)
    if newest is not None and newest.state is not JobState.ENDED:
        turn.order(*[orders.keep(newest, node)] if node in newest.lineage.holders else [])


def orphaned_launchers(
    state: State, node: str, seen: Iterable[JobOnNode]
) -> list[OrphanedLauncher]:
    """Return the launchers of a node that was cut off whose jobs have ended meanwhile."""
    return [
        OrphanedLauncher(on_node.job, on_node.job_id, node)
        for on_node in seen
        if on_node.launcher and on_node.job_id and is_over(state, on_node.job, on_node.job_id)
    ]


def refuse_launcher(turn: Reconciliation, name: str, node: str, reason: str) -> None:
    """Turn a launcher away, now and whenever its agent comes back."""
    turn.state.nodes[node].jobs.refusals[name] = reason
    turn.order(orders.refuse(name, node, reason))
    turn.announce(name, "LauncherRefused", f"launcher on {node} refused: {reason}")


def is_next(job: JobRecord, event: Reported[LauncherJoined]) -> bool:
    """Return whether a launcher is not of a job that is ending, but of the next one of its name."""
    if not is_ending(job) or event.report.job_id == job.id:
        return False
    if not same_owner(job, event):
        return False
    return event.origin.node not in job.launchers and not event.report.running_generation


def is_ending(job: JobRecord) -> bool:
    """Return whether a job has still to end, and will as soon as it can."""
    wanted = bool(job.ending.wanted) and job.state is not JobState.ENDED
    return wanted or job.state is JobState.CLOSING


def job_after(state: State, job: JobRecord) -> JobRecord | None:
    """Return the job that waits for the end of this one."""
    return next((one for one in jobs_of_name(state, job.name) if one.after == job.id), None)


def await_end(turn: Reconciliation, job: JobRecord, before: JobRecord) -> None:
    """Have a new job wait for the end of the one of its name before it."""
    job.after = before.id
    job.reason = f"waits for the end of the job of this name before it: {orders.what_lasts(before)}"
    settings = turn.state.settings
    stop_ns = settings.stop_grace_ns + settings.answer_timeout_ns
    turn.set_timer(_timer(job), stop_ns + settings.final_save_timeout_ns + _SLACK_NS)
    turn.announce(job.name, "JobWaits", f"{job.id} {job.reason}")


def note_wish(job: JobRecord, report: LauncherJoined) -> None:
    """Remember, until a job begins that waits, what a launcher says of where it is to begin."""
    job.lineage.fresh = job.lineage.fresh or report.fresh
    known = job.lineage.latest
    if report.latest is not None and (known is None or report.latest.key > known.key):
        job.lineage.latest, job.lineage.stored_branch = report.latest, branch_of(report)


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Have a new job begin, unless the job of its name before it has still to end."""
    before = turn.state.jobs.get(job.after)
    if not job.launchers:
        _drop(turn, job)
        return
    if before is not None and before.state is not JobState.ENDED:
        if TimerKind.NEXT in job.news.due:
            _refuse_launchers(turn, job, before)
        return
    job.after = ""
    turn.drop_timer(_timer(job))
    wish = job.lineage
    begin(turn, job, before)
    if wish.fresh:
        start_fresh(turn, job)
    job.lineage.continued, job.lineage.stored_doubt = wish.continued, wish.stored_doubt
    storage_seen(job, wish.latest, wish.stored_branch)


def begin(turn: Reconciliation, job: JobRecord, before: JobRecord | None) -> None:
    """Have a job begin: it has its name from now on, and what the one before it has left."""
    turn.state.names[job.name] = job.id
    turn.announce(job.name, "JobForming", f"{job.id} was started by user {job.spec.uid}")
    if before is not None:
        # Generations of a name never repeat, so what an old job left behind stays fenced off.
        job.generation.number = max(job.generation.number, before.generation.number)
        _note_another_user(turn, job, before)
    if not job.first_number:
        _, lost = lost_ends.newest_of_name(turn.state, job.name)
        job.generation.number = max(job.generation.number, lost)
    own = _newest_of_user(turn.state, job)
    if own is not None:
        take_over_state(turn, job, own)
    _forget_oldest(turn, job.name)


def _drop(turn: Reconciliation, job: JobRecord) -> None:
    """Drop a job that has not begun: no launcher is left that waits for it to begin."""
    remove_job(turn.state, job)
    turn.drop_timer(_timer(job))


def _refuse_launchers(turn: Reconciliation, job: JobRecord, before: JobRecord) -> None:
    """The job before this one has not come to its end in time: who waits for that is told so."""
    reason = (
        f"the job of this name before it has not ended: {orders.what_lasts(before)}; "
        f"see 'everstep job {job.name}', or choose another name with --job"
    )
    for node in job.launchers:
        refuse_launcher(turn, job.name, node, reason)
    job.launchers.clear()
    _drop(turn, job)


def release_next(turn: Reconciliation, job: JobRecord) -> None:
    """A job is over: one that has waited for that begins when it is reconciled."""
    waiting = job_after(turn.state, job)
    if waiting is not None:
        turn.mark_job(waiting.id)


def _forget_oldest(turn: Reconciliation, name: str) -> None:
    """Keep only so many jobs that another one of their name has followed."""
    past = [job for job in jobs_of_name(turn.state, name) if not turn.state.is_current(job)]
    for job in [job for job in past if job.state is JobState.ENDED][:-_ENDED_MAX]:
        forget_incidents(turn.state, job)
        remove_job(turn.state, job)
        turn.drop_timer(f"{TimerKind.FORGET}/{job.id}")


def _timer(job: JobRecord) -> str:
    return f"{TimerKind.NEXT}/{job.id}"


def take_over_state(turn: Reconciliation, job: JobRecord, ended: JobRecord) -> None:
    """Have a new job go on from the one that has ended; if it may not, have its memory dropped.

    Whoever goes on has to be the same user with the same token. What nobody can go on from any
    more, nodes need not keep, and whatever they hold of it is never chosen.
    """
    if _owner(job) != _owner(ended) or not ended.ending.leaves_state or not ended.lineage.branch:
        _leave_state(turn, job, ended)
        return
    if ended.lineage.branch[-1].generation == ended.generation.number:
        restore_point.note_crash(turn, ended)
    known = ended.lineage
    job.lineage = Lineage(
        branch=list(known.branch),
        holders=dict(known.holders),
        crashed_from=list(known.crashed_from),
        recoverable_step=known.recoverable_step,
        adopted=known.adopted,
        skipped=list(known.skipped),
        root=ended.lineage_id,
    )
    past = Predecessor(ended.id, ended.since_ns, _how_it_ended(ended))
    if known.continues and not known.started:
        past = known.continues  # this one has never made a step of its own
    when = ago(turn.now_ns - past.ended_ns)
    job.lineage.continues = past
    job.lineage.begun = (
        f"goes on from what is left of the job that {past.how} {when}; "
        "use --fresh to start from scratch"
    )
    turn.announce(job.name, "JobContinues", f"{job.name} {job.lineage.begun}")
    turn.order(*(orders.keep(job, node) for node in job.lineage.holders))
    ended.lineage.holders.clear()  # what they hold is this job's from now on
    for node in job.lineage.holders:
        note_node(turn.state, node, job)


def _how_it_ended(ended: JobRecord) -> str:
    """Return it as the end of a sentence that begins with "the job that"."""
    if ended.ending.unsaved:
        return "ended without its last step in storage"
    if ended.outcome is Outcome.REPLACED:
        return "lost its launchers"
    return "was cancelled" if ended.outcome is Outcome.CANCELLED else "failed"


def start_fresh(turn: Reconciliation, job: JobRecord) -> None:
    """Have a job that has not started yet leave what there is from before, as its user wants."""
    job.lineage.fresh = True
    if not job.lineage.branch:
        return
    left = (
        ""
        if job.lineage.recoverable_step is None
        else f", after step {job.lineage.recoverable_step}"
    )
    past = job.lineage.continues
    whose = f"the job that {past.how} {ago(turn.now_ns - past.ended_ns)}" if past else "storage"
    job.lineage.begun = (
        f"starts from scratch, as --fresh asks, and leaves the state of {whose}{left}"
    )
    turn.announce(job.name, "JobStartedFresh", f"{job.name} {job.lineage.begun}")
    _drop_state(turn, job, job)


def storage_seen(job: JobRecord, latest: StoredStep | None, branch: Sequence[BranchPoint]) -> None:
    """Have a job that has not started yet go on where storage ends; the newest word counts."""
    if latest is None:
        return
    job.generation.number = max(job.generation.number, latest.generation)
    if job.lineage.fresh or (
        job.lineage.latest is not None and latest.key <= job.lineage.latest.key
    ):
        return
    if any(point.has(*latest.key) for point in job.lineage.branch):
        job.lineage.latest = latest
    elif job.lineage.continues is None or latest.generation > max(
        point.generation for point in job.lineage.branch
    ):
        # A newer generation than any that is known here fences all of these off.
        job.lineage.latest, job.lineage.continues, job.lineage.begun = latest, None, ""
        job.lineage.branch = list(branch)
        job.lineage.skipped = list(latest.skipped)


def chosen_step_or_fresh(
    state: State, job: JobRecord, event: RecoveryStepChosen, now_ns: int
) -> RecoveryStepChosen:
    """Return the choice; a fresh start where what a job before this one had is gone for good.

    It is not, as long as a node is away that had some of it, and would still keep it.
    """
    past = job.lineage.continues
    if past is None or job.lineage.started:
        return event
    if not event.lost and event.step is None:
        job.lineage.continues, job.lineage.begun = None, ""  # it had not made any state
    if not event.lost or job.lineage.latest is not None or job.lineage.stored_doubt:
        return event
    away = any(state.nodes[name].gone for name in job.lineage.holders)
    if away and now_ns - past.ended_ns < state.settings.memory_kept_ns:
        return event
    job.lineage.recoverable_step, job.lineage.skipped = None, []
    reason = f"nothing is left of the job that {past.how} ({event.lost})"
    job.lineage.begun = f"starts from scratch: {reason}"
    return replace(event, lost="", step=None, reason=reason)


def continues_sentence(job: JobRecord, event: RecoveryStepChosen, now_ns: int) -> str:
    """Return how a generation begins that is the first to go on from another job's state."""
    past = job.lineage.continues
    assert past is not None
    when = ago(now_ns - past.ended_ns)
    return (
        f"continues after step {event.step} of the job that {past.how} {when}, "
        f"from {_place_of(event)}{without_data(job)}; use --fresh to start from scratch"
    )


def without_data(job: JobRecord) -> str:
    """Return which data it goes on without; empty where nothing is left out."""
    ranges = [str(one) for one in job.lineage.skipped]
    return f" without data {_names(ranges)}" if ranges else ""


def ago(time_ns: int) -> str:
    """Return how long ago something was, for people."""
    seconds = max(0, round(time_ns / _S))
    if seconds < 100:
        return f"{seconds} s ago"
    minutes = round(seconds / 60)
    return f"{minutes} min ago" if minutes < 100 else f"{round(minutes / 60)} h ago"


def same_owner(job: JobRecord, event: Reported[LauncherJoined]) -> bool:
    """Return whether a launcher is of a job's user and has its token."""
    return _owner(job) == (event.report.uid, event.report.token_sha256)


def _owner(job: JobRecord) -> tuple[int, str]:
    return (job.spec.uid, job.spec.token_sha256)


def _newest_of_user(state: State, job: JobRecord) -> JobRecord | None:
    """Return the newest job of this name and user that has ended, whoever had the name since."""
    mine = [
        one
        for one in jobs_of_name(state, job.name)
        if one.spec.uid == job.spec.uid and one.state is JobState.ENDED and one is not job
    ]
    return mine[-1] if mine else None


def _note_another_user(turn: Reconciliation, job: JobRecord, before: JobRecord) -> None:
    """Say that a job of another user is not gone on from; nodes keep what they have of it."""
    left = before.lineage.branch and before.ending.leaves_state
    if left and job.spec.uid != before.spec.uid:
        _begin_from_scratch(turn, job, "belonged to another user")


def _leave_state(turn: Reconciliation, job: JobRecord, ended: JobRecord) -> None:
    if ended.lineage.branch and ended.ending.leaves_state:
        _begin_from_scratch(turn, job, "had another token")
    _drop_state(turn, job, ended)


def _begin_from_scratch(turn: Reconciliation, job: JobRecord, why: str) -> None:
    job.lineage.begun = f"starts from scratch: the job of this name before it {why}"
    turn.announce(job.name, "JobStartedFresh", f"{job.name} {job.lineage.begun}")


def _drop_state(turn: Reconciliation, job: JobRecord, ended: JobRecord) -> None:
    if ended.ending.leaves_state:
        turn.order(*(orders.forget(ended, node) for node in ended.lineage.holders))
    ended.lineage.holders.clear()
    known = job.lineage
    job.lineage = Lineage(begun=known.begun, fresh=known.fresh, continued=known.continued)


def _place_of(event: RecoveryStepChosen) -> str:
    on_disk = {source.node for source in event.sources if source.on_disk}
    in_memory = sorted({source.node for source in event.sources if not source.on_disk})
    if event.tier == "shared storage":
        return "storage"
    if event.tier == "local disk":
        return f"memory and local disks of {_names(sorted({*on_disk, *in_memory}))}"
    return f"memory of {_names(in_memory)}"


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED_MAX])
    more = len(names) - _NAMED_MAX
    return shown if more <= 0 else f"{shown} and {more} more"


TIMERS: Timers = job_timers(TimerKind.NEXT)
