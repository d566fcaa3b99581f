"""Unsaved steps: a job goes on, and no newer step of it becomes recoverable.

Its ranks go on without an agent that is away, with full memory, or without a peer that takes
replicas. Nothing is wrong with the training; what a failure would cost grows with each step.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from everstep_common.judging.condition import Condition
from everstep_common.judging.findings import Finding, Mode, Severity, SuggestedAction
from everstep_controller.core.jobs import restore_point
from everstep_controller.core.jobs.lifecycle import STEPPING
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.model.node import NodeRecord, OpenFinding
from everstep_controller.core.model.state import State, doubtful_members
from everstep_controller.core.turn import Reconciliation, Turn

STEPS_UNSAVED = Condition(
    name="StepsUnsaved",
    component="controller/snapshots/JOB",
    meaning="a job makes steps and takes snapshots, and none of its newer steps becomes "
    "recoverable: the agent of a member is away or hangs, memory is full, or copies do not arrive;"
    " it trains on, and a failure would cost all that it has made since; where this is enforced, a "
    "spare takes the place of a member whose agent is away, after a step that its ranks have saved",
    source="the recoverable step, which stands still for core.unsaved_max_s (60 s)",
    clears_when="a newer step is recoverable, or the job has stopped",
    mode=Mode.ADVISE,
)
_S = 1_000_000_000
# Number of nodes that a sentence names.
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Obstacle to newer recoverable steps: a sentence, and what to type about it next."""

    sentence: str
    command: str


def watch(turn: Turn, job: JobRecord, recoverable_before: int | None) -> None:
    """Note since when a newer step should have become recoverable, as of the newest rows."""
    unsaved, step = job.generation.unsaved, job.lineage.recoverable_step
    if step is not None and (recoverable_before is None or step > recoverable_before):
        unsaved.since_ns = 0
    if not _is_wanted(turn.state, job):
        unsaved.since_ns = unsaved.since_ns if unsaved.told else 0
    elif not unsaved.since_ns:
        unsaved.since_ns = turn.now_ns
    if unsaved.told is not _is_overdue(turn.state, job, turn.now_ns):
        turn.mark_job(job.id)


def _is_wanted(state: State, job: JobRecord) -> bool:
    """Return whether a step after the recoverable one was snapshotted, or should have been.

    A script that saves each thousandth step has nothing to become recoverable in between.
    """
    last, known = job.lineage.last_step, job.lineage.recoverable_step
    if last is None or (known is not None and last <= known):
        return False
    after = -1 if known is None else known
    if after < job.snapshot_costs.step <= last:
        return True
    due = _has_snapshots(job) and _next_snapshot(job, after) <= last
    return due and bool(doubtful_members(state, job))


def _has_snapshots(job: JobRecord) -> bool:
    return bool(job.snapshot_costs.newest_ns) or restore_point.has_state(job)


def _next_snapshot(job: JobRecord, after: int) -> int:
    """Return the first step after one that is to be snapshotted."""
    every, first = job.cadence.every, max(after + 1, job.cadence.start)
    return -(-first // every) * every


def _is_overdue(state: State, job: JobRecord, now_ns: int) -> bool:
    since_ns, limit_ns = job.generation.unsaved.since_ns, state.settings.unsaved_max_ns
    return bool(limit_ns and since_ns) and now_ns - since_ns >= limit_ns


def postpone(turn: Turn) -> None:
    """Count no time in which nobody heard which steps are recoverable."""
    for job in turn.state.newest_jobs():
        unsaved = job.generation.unsaved
        if unsaved.since_ns and not unsaved.told:
            unsaved.since_ns = turn.now_ns


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Tell people that a job's steps are not saved, and that they are again."""
    unsaved = job.generation.unsaved
    if job.state not in STEPPING:
        return
    overdue = _is_overdue(turn.state, job, turn.now_ns)
    if overdue and not unsaved.told:
        unsaved.told = True
        turn.announce(job.name, STEPS_UNSAVED.name, sentence(turn.state, job))
    elif unsaved.told and not overdue:
        unsaved.told = False
        if doubtful_members(turn.state, job):
            unsaved.saved_step = job.lineage.recoverable_step
        message = f"{job.name}: step {job.lineage.recoverable_step} is recoverable"
        turn.announce(job.name, f"{STEPS_UNSAVED.name}Cleared", message)


# --- what people read ----------------------------------------------------------------------------


def findings(state: State) -> Iterator[OpenFinding]:
    """Yield a finding for each job whose steps are not saved."""
    for job in state.newest_jobs():
        yield from findings_of_job(state, job)


def findings_of_job(state: State, job: JobRecord) -> Iterator[OpenFinding]:
    """Yield the finding that a job's steps are not saved, if that is so."""
    if is_unsaved(job):
        yield OpenFinding(_finding(state, job), job.generation.unsaved.since_ns)


def is_unsaved(job: JobRecord) -> bool:
    """Return whether a job goes on of which people were told that its steps are not saved."""
    return job.generation.unsaved.told and job.state in STEPPING


def has_folder(job: JobRecord) -> bool:
    """Return whether ranks without an agent can write a step to the job's folder themselves."""
    storage = job.spec.storage
    return storage is not None and not storage.path.startswith("s3://")


def steps_at_risk(job: JobRecord) -> int:
    """Return how many steps a failure would cost now that should be safe by now; 0 for none."""
    if not is_unsaved(job) or job.lineage.last_step is None:
        return 0
    known = job.lineage.recoverable_step
    return job.lineage.last_step - (-1 if known is None else known)


def sentence(state: State, job: JobRecord) -> str:
    """Say what a failure of a job would cost now, and why no newer step is recoverable."""
    known, count = job.lineage.recoverable_step, steps_at_risk(job)
    kept = "no step is" if known is None else f"no step after {known} is"
    steps = f"{count} step{'' if count == 1 else 's'}"
    return (
        f"a failure of {job.name} now costs {steps} ({_time_at_risk(job)} of training): {kept} "
        f"recoverable, for {obstacle(state, job).sentence}"
    )


def obstacle(state: State, job: JobRecord) -> Obstacle:
    """Return what keeps newer steps of a job from being recoverable, as far as it is known."""
    members = [state.nodes[name] for name in job.generation.members]
    if away := [node for node in members if node.doubtful]:
        named = _named([node.name for node in away])
        why = f"the agent of {named} is away: {away[0].liveness.silence.doubt}"
        then = _end_unknown(job) or _own_saving(state, job)
        return _of_agent(f"{why}; {then}", away[0], job.generation.unsaved.move)
    if flapping := [
        node for node in members if node.streams.flaps_since_ns or not node.liveness.connected
    ]:
        return _of_agent(
            f"the agent of {_named([node.name for node in flapping])} comes and goes", flapping[0]
        )
    for node in members:
        for one in node.health.findings.values():
            if one.finding.key.job == job.name:
                return Obstacle(f"{node.name} says: {one.finding.message}", _look_into(node))
    table = f"'everstep snapshots {job.name}'"
    return Obstacle("copies of newer ones are missing", f"{table} shows which")


def _end_unknown(job: JobRecord) -> str:
    """Say that only an absent agent can tell whether a job is over; "" where it has steps left."""
    ended = list(job.generation.finished)
    if not ended:
        return ""
    return (
        f"all ranks on {_named(ended)} have ended well, and only that agent can say whether the "
        "others have: the job waits for it as long as these steps took, a minute to an hour"
    )


def _own_saving(state: State, job: JobRecord) -> str:
    """Say whether ranks without an agent bring steps to storage by themselves, or why not."""
    storage = job.spec.storage
    if storage is None:
        return "its ranks save nothing by themselves, for the job was started without --persist"
    if storage.path.startswith("s3://"):
        return "its ranks save nothing by themselves, for --persist names a bucket, not a folder"
    after_s = state.settings.unsaved_max_ns // _S
    return f"its ranks are asked every {after_s} s to write a step to {storage.path} by themselves"


def _of_agent(why: str, node: NodeRecord, move: str = "") -> Obstacle:
    log = f"'journalctl -u everstep-agent' on {node.name} says why"
    drain = f"'everstep drain {node.name}' moves its ranks, at the price of these steps unless one"
    moves = move or "nothing moves its ranks by itself"
    restart = f"{log}, and its restart saves steps again"
    return Obstacle(why, f"{restart}; {moves}; {drain} is recoverable first")


def _look_into(node: NodeRecord) -> str:
    return f"'everstep findings {node.name}' says more"


def _named(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more


def time_at_risk_ns(job: JobRecord) -> int:
    """Return how long the steps took that a failure would cost, as far as their times are kept.

    0 of a script that makes no snapshots: where it goes on is its own business.
    """
    steps = job.ledger.steps
    if not steps or not _has_snapshots(job):
        return 0
    return steps[-1].end_ns - (_kept_ns(job) or steps[0].start_ns)


def _kept_ns(job: JobRecord) -> int:
    """Return when the recoverable step ended; 0 where that is not known."""
    known = job.lineage.recoverable_step
    return 0 if known is None else job.ledger.steps.ended_ns(known)


def _time_at_risk(job: JobRecord) -> str:
    """Return the same in words."""
    is_longer = job.lineage.recoverable_step is not None and not _kept_ns(job)
    more = "more than " if job.ledger.steps and is_longer else ""
    minutes, seconds = divmod(time_at_risk_ns(job) // _S, 60)
    return f"{more}{minutes} min {seconds} s" if minutes else f"{more}{seconds} s"


def _finding(state: State, job: JobRecord) -> Finding:
    return Finding(
        component=f"controller/snapshots/{job.name}",
        condition=STEPS_UNSAVED.name,
        mode=STEPS_UNSAVED.mode,
        severity=Severity.DEGRADED,
        message=sentence(state, job),
        suggested_action=SuggestedAction.WATCH,
        rule=f"{obstacle(state, job).command}; cleared when a newer step is recoverable",
    )
