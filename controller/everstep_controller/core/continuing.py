"""What a job takes over from the one of its name before it: the whole branch, or nothing."""

from dataclasses import replace

from everstep_controller.core import end_orders, probation
from everstep_controller.core.events import LauncherJoined, RecoveryStepChosen
from everstep_controller.core.facts import BranchPoint, Past, StoredStep
from everstep_controller.core.state import JobRecord, State
from everstep_controller.core.turn import Turn

# So many nodes are named in a sentence.
_NAMED_MAX = 3
_S = 1_000_000_000


def take_over(turn: Turn, job: JobRecord, ended: JobRecord) -> None:
    """Have a new job go on from the one that has ended; if it may not, have its memory dropped.

    Whoever goes on has to be the same user with the same token. What nobody can go on from any
    more, nodes need not keep, and whatever they hold of it is never chosen.
    """
    if _owner(job) != _owner(ended) or not ended.leaves_state or not ended.branch:
        _leave(turn, job, ended)
        return
    if ended.branch[-1].generation == ended.generation:
        probation.judge(turn, ended)
    job.branch, job.holders = list(ended.branch), dict(ended.holders)
    job.crashed_from, job.judged_generation = list(ended.crashed_from), ended.generation
    job.recoverable_step, job.skipped = ended.recoverable_step, list(ended.skipped)
    job.foreign_generation = ended.foreign_generation
    failed = "was cancelled" if ended.ending else "failed"
    how = "ended without its last step in storage" if ended.unsaved else failed
    past = ended.past if ended.past and not ended.start_reason else Past(ended.since_ns, how)
    when = ago(turn.now_ns - past.ended_ns)
    job.past = past
    job.begun = (
        f"goes on from what is left of the job that {past.how} {when}; --fresh would begin anew"
    )
    turn.announce(job.name, "JobContinues", f"{job.name} {job.begun}")
    turn.actions.extend(end_orders.keep(job, node) for node in job.holders)


def begin_anew(turn: Turn, job: JobRecord) -> None:
    """Have a job that has not started yet leave what there is from before, as its user wants."""
    job.fresh = True
    if not job.branch:
        return
    left = "" if job.recoverable_step is None else f", after step {job.recoverable_step}"
    past = job.past
    whose = f"the job that {past.how} {ago(turn.now_ns - past.ended_ns)}" if past else "storage"
    job.begun = f"begins anew, as --fresh asks, and leaves the state of {whose}{left}"
    turn.announce(job.name, "JobBegunAnew", f"{job.name} {job.begun}")
    _drop(turn, job, job)


def storage_seen(job: JobRecord, latest: StoredStep | None) -> None:
    """Have a job that has not started yet go on where storage ends; the newest word counts."""
    if latest is None:
        return
    job.generation = max(job.generation, latest.generation)
    if job.fresh or (job.latest is not None and latest.key <= job.latest.key):
        return
    if any(point.has(*latest.key) for point in job.branch):
        job.latest = latest
    elif job.past is None or latest.generation > max(point.generation for point in job.branch):
        # A newer generation than any that is known here fences all of these off.
        job.latest, job.past, job.begun = latest, None, ""
        job.branch = [BranchPoint(latest.generation, latest.step, latest.world_size)]
        job.skipped = list(latest.skipped)


def or_anew(
    state: State, job: JobRecord, event: RecoveryStepChosen, now_ns: int
) -> RecoveryStepChosen:
    """Return the choice; a fresh start where what a job before this one had is gone for good.

    It is not, as long as a node is away that had some of it, and would still keep it.
    """
    past = job.past
    if past is None or job.start_reason:
        return event
    if not event.lost and event.step is None:
        job.past, job.begun = None, ""  # it had not made any state
    if not event.lost or job.latest is not None:
        return event
    away = any(state.nodes[name].gone for name in job.holders)
    if away and now_ns - past.ended_ns < state.settings.memory_kept_ns:
        return event
    job.recoverable_step, job.skipped = None, []
    reason = f"nothing is left of the job that {past.how} ({event.lost})"
    job.begun = f"begins anew: {reason}"
    return replace(event, lost="", step=None, reason=reason)


def sentence(job: JobRecord, event: RecoveryStepChosen, now_ns: int) -> str:
    """Return how a generation begins that is the first to go on from another job's state."""
    assert job.past is not None
    when = ago(now_ns - job.past.ended_ns)
    return (
        f"continues after step {event.step} of the job that {job.past.how} {when}, "
        f"from {_where(event)}{without(job)}; --fresh would begin anew"
    )


def without(job: JobRecord) -> str:
    """Return which data it goes on without; empty where nothing is left out."""
    ranges = [f"{first} to {last}" if first < last else f"{first}" for first, last in job.skipped]
    return f" without data {_names(ranges)}" if ranges else ""


def ago(time_ns: int) -> str:
    """Return how long ago something was, for people."""
    seconds = max(0, round(time_ns / _S))
    if seconds < 100:
        return f"{seconds} s ago"
    minutes = round(seconds / 60)
    return f"{minutes} min ago" if minutes < 100 else f"{round(minutes / 60)} h ago"


def same_owner(job: JobRecord, event: LauncherJoined) -> bool:
    """Return whether a launcher is of a job's user and has its token."""
    return _owner(job) == (event.uid, event.token_sha256)


def _owner(job: JobRecord) -> tuple[int, str]:
    return (job.uid, job.token_sha256)


def _leave(turn: Turn, job: JobRecord, ended: JobRecord) -> None:
    if ended.branch and ended.leaves_state:
        whose = "another token" if job.uid == ended.uid else "another user"
        job.begun = f"begins anew: the job of this name before it was of {whose}"
        turn.announce(job.name, "JobBegunAnew", f"{job.name} {job.begun}")
    _drop(turn, job, ended)


def _drop(turn: Turn, job: JobRecord, ended: JobRecord) -> None:
    if ended.leaves_state:
        turn.actions.extend(end_orders.forget(ended, node) for node in ended.holders)
    job.foreign_generation = ended.generation
    job.branch, job.crashed_from, job.holders, job.skipped = [], [], {}, []
    job.recoverable_step = job.latest = job.past = None


def _where(event: RecoveryStepChosen) -> str:
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
