"""Job identity: how jobs of one name are told apart, wait for each other, and continue another.

A job has a name, and a number that tells it from the jobs of this name before and after it. Its
launchers learn the number, and say it again whenever they come back. A launcher that comes while
the job before its own still ends waits for that end. A new job takes over the whole branch of
the one before it, or nothing.
"""

from collections.abc import Iterable
from dataclasses import replace

from everstep_common.reports import JobOnNode, LauncherJoined, StoredStep
from everstep_controller.core.events import RecoveryStepChosen, Reported
from everstep_controller.core.jobs import orders, restore_point
from everstep_controller.core.model.job import EndedJob, JobRecord, JobState, Lineage
from everstep_controller.core.model.snapshots import BranchPoint, Past
from everstep_controller.core.model.state import State
from everstep_controller.core.registry import Timers
from everstep_controller.core.turn import TimerKind, Turn

# So many ends are remembered of one name.
_ENDS_MAX = 8

# Besides the time that the last step of a job may take to storage: agents kill what does not stop
# within seconds, and a node that is silent counts as lost within a quarter of a minute.
_STOP_NS = 60_000_000_000

# So many nodes are named in a sentence.
_NAMED_MAX = 3

_S = 1_000_000_000


def number_for(turn: Turn, event: Reported[LauncherJoined], ended: JobRecord | None) -> int:
    """Return the number of a new job; one that runs already, and is not known here, has its own."""
    if 0 < event.report.job_id <= turn.now_ns:
        return event.report.job_id
    return max(turn.now_ns, ended.job_id + 1 if ended is not None else 0)


def ends_before(ended: JobRecord | None) -> list[EndedJob]:
    """Return how the jobs of a name have ended before the new one."""
    if ended is None:
        return []
    end = EndedJob(ended.job_id, ended.ending.succeeded, ended.reason)
    return [*ended.ends_before, end][-_ENDS_MAX:]


def is_over(job: JobRecord, job_id: int) -> bool:
    """Return whether the job of this number and name is over.

    One with a higher number than is known here is not: this journal is older than it.
    """
    if not job_id:
        return False
    return job_id < job.job_id or (job_id == job.job_id and job.state is JobState.ENDED)


def tell_late_launcher(turn: Turn, job: JobRecord, node: str, job_id: int) -> None:
    """Tell a launcher that its job is over; what the node holds of it is kept if it is wanted."""
    order = orders.end_of(job, node, job_id)
    turn.announce(job.name, "LauncherLate", f"the launcher on {node} is late: {order.reason}")
    turn.actions.append(order)
    if job.state is not JobState.ENDED and node in job.lineage.holders:
        turn.actions.append(orders.keep(job, node))


def tell_late_launchers_on(turn: Turn, node: str, seen: Iterable[JobOnNode]) -> None:
    """Tell the launchers of a node that was cut off whose jobs have ended meanwhile."""
    for on_node in seen:
        job = turn.state.jobs.get(on_node.job)
        if job is not None and is_over(job, on_node.job_id):
            tell_late_launcher(turn, job, node, on_node.job_id)


def is_next(job: JobRecord, event: Reported[LauncherJoined]) -> bool:
    """Return whether a launcher is not of a job that is ending, but of the next one of its name."""
    if not is_ending(job) or event.report.job_id == job.job_id:
        return False
    if not same_owner(job, event):
        return False
    return event.origin.node not in job.launchers and not event.report.running_generation


def is_ending(job: JobRecord) -> bool:
    """Return whether a job has still to end, and will as soon as it can."""
    wanted = bool(job.ending.wanted) and job.state is not JobState.ENDED
    return wanted or job.state is JobState.CLOSING


def wait_for_end(turn: Turn, job: JobRecord, event: Reported[LauncherJoined]) -> None:
    """Have a launcher wait for the end of the job before its own."""
    node = event.origin.node
    if not job.successors:
        turn.set_timer(_timer(job), turn.state.settings.final_save_timeout_ns + _STOP_NS)
    job.successors[node] = event
    order = orders.hold_for_end(job, node)
    turn.announce(job.name, "LauncherWaits", f"the launcher on {node} {order.reason}")
    turn.actions.append(order)


def successor_left(turn: Turn, job: JobRecord, node: str) -> bool:
    """A launcher is gone; return whether it was one that waited."""
    waited = job.successors.pop(node, None) is not None
    if waited and not job.successors:
        turn.drop_timer(_timer(job))
    return waited


def end_overdue(turn: Turn, name: str) -> None:
    """A job has not come to its end in time: whoever waits for it is told so."""
    job = turn.state.jobs.get(name)
    if job is None:
        return
    for node in job.successors:
        reason = (
            f"the job of this name before it has not ended: {orders.what_lasts(job)}; see "
            f"'everstep job {name}', or choose another name with --job"
        )
        turn.state.refusals[f"{name}@{node}"] = reason
        turn.actions.append(orders.refuse(name, node, reason))
        turn.announce(name, "LauncherRefused", f"launcher on {node} refused: {reason}")
    job.successors.clear()


def release_successors(turn: Turn, job: JobRecord) -> None:
    """A job is over: those that waited join the next one when it is reconciled."""
    turn.mark_job(job.name)
    turn.drop_timer(_timer(job))


def _timer(job: JobRecord) -> str:
    return f"{TimerKind.NEXT}/{job.name}"


def take_over_state(turn: Turn, job: JobRecord, ended: JobRecord) -> None:
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
        skipped=list(known.skipped),
        foreign_generation=known.foreign_generation,
    )
    failed = "was cancelled" if ended.ending.wanted else "failed"
    how = "ended without its last step in storage" if ended.ending.unsaved else failed
    past = (
        ended.lineage.past
        if ended.lineage.past and not ended.lineage.started
        else Past(ended.since_ns, how)
    )
    when = ago(turn.now_ns - past.ended_ns)
    job.lineage.past = past
    job.lineage.begun = (
        f"goes on from what is left of the job that {past.how} {when}; "
        "use --fresh to start from scratch"
    )
    turn.announce(job.name, "JobContinues", f"{job.name} {job.lineage.begun}")
    turn.actions.extend(orders.keep(job, node) for node in job.lineage.holders)


def begin_anew(turn: Turn, job: JobRecord) -> None:
    """Have a job that has not started yet leave what there is from before, as its user wants."""
    job.lineage.fresh = True
    if not job.lineage.branch:
        return
    left = (
        ""
        if job.lineage.recoverable_step is None
        else f", after step {job.lineage.recoverable_step}"
    )
    past = job.lineage.past
    whose = f"the job that {past.how} {ago(turn.now_ns - past.ended_ns)}" if past else "storage"
    job.lineage.begun = (
        f"starts from scratch, as --fresh asks, and leaves the state of {whose}{left}"
    )
    turn.announce(job.name, "JobBegunAnew", f"{job.name} {job.lineage.begun}")
    _drop_state(turn, job, job)


def storage_seen(job: JobRecord, latest: StoredStep | None) -> None:
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
    elif job.lineage.past is None or latest.generation > max(
        point.generation for point in job.lineage.branch
    ):
        # A newer generation than any that is known here fences all of these off.
        job.lineage.latest, job.lineage.past, job.lineage.begun = latest, None, ""
        job.lineage.branch = [BranchPoint(latest.generation, latest.step, latest.world_size)]
        job.lineage.skipped = list(latest.skipped)


def choice_or_anew(
    state: State, job: JobRecord, event: RecoveryStepChosen, now_ns: int
) -> RecoveryStepChosen:
    """Return the choice; a fresh start where what a job before this one had is gone for good.

    It is not, as long as a node is away that had some of it, and would still keep it.
    """
    past = job.lineage.past
    if past is None or job.lineage.started:
        return event
    if not event.lost and event.step is None:
        job.lineage.past, job.lineage.begun = None, ""  # it had not made any state
    if not event.lost or job.lineage.latest is not None:
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
    assert job.lineage.past is not None
    when = ago(now_ns - job.lineage.past.ended_ns)
    return (
        f"continues after step {event.step} of the job that {job.lineage.past.how} {when}, "
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


def _leave_state(turn: Turn, job: JobRecord, ended: JobRecord) -> None:
    if ended.lineage.branch and ended.ending.leaves_state:
        whose = "another token" if job.spec.uid == ended.spec.uid else "another user"
        job.lineage.begun = (
            f"starts from scratch: the job of this name before it belonged to {whose}"
        )
        turn.announce(job.name, "JobBegunAnew", f"{job.name} {job.lineage.begun}")
    _drop_state(turn, job, ended)


def _drop_state(turn: Turn, job: JobRecord, ended: JobRecord) -> None:
    if ended.ending.leaves_state:
        turn.actions.extend(orders.forget(ended, node) for node in ended.lineage.holders)
    job.lineage = Lineage(
        begun=job.lineage.begun,
        fresh=job.lineage.fresh,
        foreign_generation=ended.generation.number,
    )


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


TIMERS: Timers = {
    TimerKind.NEXT: end_overdue,
}
