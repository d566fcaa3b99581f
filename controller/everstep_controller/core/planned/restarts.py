"""Planned restarts and stops: a running job ends a step that is recoverable, so nothing is lost.

What is wanted follows from the state alone and is looked at after every event that may change it,
so that a word said twice, or a controller that was away, changes nothing.
"""

import math
from collections.abc import Set
from statistics import median_high

from everstep_common.endings import by_operator
from everstep_controller.core import events
from everstep_controller.core.events import RestartCancelled, RestartOrdered, StopOrdered
from everstep_controller.core.jobs import incidents, restore_point, unsaved
from everstep_controller.core.jobs.lifecycle import ACTIVE, BEGINNING, OVER, STEPPING
from everstep_controller.core.model.job import (
    Cause,
    JobFault,
    JobRecord,
    JobState,
    Planned,
    PlannedKind,
)
from everstep_controller.core.model.node import AUTOMATION, MAINTENANCE, NodeRecord
from everstep_controller.core.model.state import State, doubtful_members
from everstep_controller.core.nodes import budgets
from everstep_controller.core.planned import forecast, moves
from everstep_controller.core.planned.forecast import describe, drained, plan_without
from everstep_controller.core.recovery import backoff, planning
from everstep_controller.core.registry import Handlers, Timers, job_timers
from everstep_controller.core.turn import Reconciliation, TimerKind, Turn


def reconcile_jobs(turn: Reconciliation, job_ids: Set[str]) -> None:
    """See what is wanted of each of these jobs, and do what is due of it."""
    known = turn.state.jobs
    draining = set(turn.state.index.draining) if job_ids else set()
    for job in (known[job_id] for job_id in sorted(job_ids) if job_id in known):
        if job.state is JobState.ENDED:
            _end(turn, job)
        else:
            if TimerKind.PLANNED in job.news.due and not job.ending.asked_on:
                _give_up_boundary(turn, job)
            _forget_what_is_done(turn, job)
            if job.ending.asked_on:
                continue
            _end_where_none_runs(turn, job)
            _plan_drain(turn, job, draining)
            _plan_move(turn, job)
            _plan_growth(turn, job)
            _reach_boundary(turn, job)


def restart_ordered(turn: Turn, event: RestartOrdered) -> None:
    """An operator wants a job restarted."""
    job = turn.state.job(event.job)
    if job is None or job.state in OVER or job.ending.asked_on:
        return
    backoff.end_wait(turn, job)
    if job.state is JobState.BACKING_OFF:
        _want(turn, job, _wish(job, PlannedKind.RESTART, event))
        return
    if job.state not in (*ACTIVE, JobState.STOPPING):
        message = f"{job.name} is {job.state.value}: it starts anew as it is"
        turn.announce(job.name, "RestartPlanned", message)
        return
    _want(turn, job, _wish(job, PlannedKind.RESTART, event))


def stop_ordered(turn: Turn, event: StopOrdered) -> None:
    """An operator wants a job ended: at a step boundary, or at once where it makes no steps."""
    job = turn.state.job(event.job)
    if job is None or job.after or job.state in OVER or job.ending.asked_on:
        return
    _want(turn, job, _wish(job, PlannedKind.STOP, event))


def _wish(job: JobRecord, kind: PlannedKind, event: RestartOrdered | StopOrdered) -> Planned:
    step = event.at_step
    if step is not None and job.lineage.last_step is not None and step < job.lineage.last_step:
        step = None  # passed while the word was on its way
    return Planned(kind, event.operator, event.reason, 0, 0, step, named=step is not None)


def _end_where_none_runs(turn: Reconciliation, job: JobRecord) -> None:
    """End a job that is to be stopped while it makes no steps: there is no boundary to wait for."""
    wish = job.planned
    if wish is None or wish.kind is not PlannedKind.STOP or job.state in ACTIVE:
        return
    if not job.ending.wanted:
        job.ending.wanted = by_operator(wish.by, wish.reason)
        turn.mark_job(job.id, moved=True)
        if job.state is JobState.REPLANNING:
            planning.plan(turn, job)


def _give_up_boundary(turn: Reconciliation, job: JobRecord) -> None:
    """Stop a job whose chosen step has not become recoverable in time."""
    if job.planned is None or job.state not in ACTIVE:
        return
    waited_s = turn.state.settings.planned_restart_timeout_ns // 1_000_000_000
    if job.planned.kind is PlannedKind.MOVE:
        _drop(turn, job, f"step {job.planned.after_step} was not saved within {waited_s} s")
        return
    costs_steps = job.planned.by == AUTOMATION and unsaved.is_unsaved(job)
    if costs_steps or _waits_for_automation(turn, job, job.planned):
        turn.set_timer(
            f"{TimerKind.PLANNED}/{job.id}", turn.state.settings.planned_restart_timeout_ns
        )
        return
    newest = job.lineage.recoverable_step
    goes_to = "ends with" if job.planned.kind is PlannedKind.STOP else "goes back to"
    goes_back = "no step is" if newest is None else f"it {goes_to} step {newest}"
    late = f"step {job.planned.after_step} was not recoverable after {waited_s} s, {goes_back}"
    _stop(turn, job, late)


def drop_distant_step(state: State, job: JobRecord) -> None:
    """Have a planned restart wait for no step that is far away: the job has to leave a node."""
    wish = job.planned
    newest = -1 if job.lineage.last_step is None else job.lineage.last_step
    if wish is not None and wish.after_step is not None:
        far = wish.after_step > newest + margin(state, job)
        if far:
            wish.after_step, wish.named = None, False


# -------------------------------------------------------------------------------------------------


def _want(turn: Turn, job: JobRecord, wish: Planned) -> None:
    """Plan a restart, or add the wish to one that is planned: it serves both."""
    known = job.planned
    if known is not None and known.kind is PlannedKind.STOP is not wish.kind:
        return  # it ends, whatever else is wanted of it
    wish.generation, wish.ordered_ns = job.generation.number, turn.now_ns
    if known is not None and _says_the_same(known, wish):
        return
    if known is not None and wish.after_step is None and not _takes_back(known, wish):
        wish.after_step, wish.named = known.after_step, known.named
    elif known is not None:
        turn.drop_timer(f"{TimerKind.PLANNED}/{job.id}")
    job.planned = wish
    turn.announce(job.name, f"{wish.kind.title()}Planned", f"{job.name}: {describe(job, wish)}")


def _takes_back(known: Planned, wish: Planned) -> bool:
    """Return whether an operator who named a step says now that any will do."""
    return known.named and not wish.named and known.kind == wish.kind and wish.is_of_operator


def _says_the_same(known: Planned, wish: Planned) -> bool:
    same = (known.kind, known.by, known.reason) == (wish.kind, wish.by, wish.reason)
    same = same and not _takes_back(known, wish)
    return same and wish.after_step in (None, known.after_step)


def _forget_what_is_done(turn: Turn, job: JobRecord) -> None:
    wish = job.planned
    if wish is None or wish.kind is PlannedKind.STOP:
        return
    started = job.state in ACTIVE and job.generation.number != wish.generation
    if started and not (wish.kind is PlannedKind.DRAIN and drained(turn.state, job)):
        message = (
            f"generation {job.generation.number} of {job.name} is what was planned: {wish.reason}"
        )
        turn.announce(job.name, "PlanDone", message)
    moot = wish.kind is PlannedKind.DRAIN and not any(
        turn.state.nodes[name].draining
        for name in job.generation.members
        if name in turn.state.nodes
    )
    why = "no node is drained" if moot else ""
    if wish.kind is PlannedKind.MOVE:
        why = moves.why_over(turn.state, job, wish)
    if started:
        job.planned = None
        turn.drop_timer(f"{TimerKind.PLANNED}/{job.id}")
    elif why and job.state in ACTIVE:
        _drop(turn, job, why)


def _drop(turn: Turn, job: JobRecord, why: str) -> None:
    """Plan nothing any more of a job that is well as it is."""
    job.planned = None
    turn.drop_timer(f"{TimerKind.PLANNED}/{job.id}")
    turn.announce(job.name, "PlanDropped", f"{job.name} goes on as it is: {why}")


def _end(turn: Turn, job: JobRecord) -> None:
    """Leave nothing planned of a job that is over."""
    if job.planned is not None:
        if job.planned.kind is not PlannedKind.STOP:
            message = f"{job.name} has ended before what was planned: {job.planned.reason}"
            turn.announce(job.name, "PlanDropped", message)
        turn.drop_timer(f"{TimerKind.PLANNED}/{job.id}")
        job.planned = None


def _plan_drain(turn: Reconciliation, job: JobRecord, draining: set[str]) -> None:
    leaving = sorted(draining.intersection(job.generation.members)) if draining else []
    if not leaving or job.planned is not None:
        return
    nodes = turn.state.nodes
    must = any(nodes[name].vacated for name in leaving)
    if not must and not plan_without(turn.state, job, draining)[0]:
        return
    if job.state in (JobState.REPLANNING, JobState.BACKING_OFF):
        backoff.end_wait(turn, job)  # it leaves now, and may die of nothing elsewhere
        planning.plan(turn, job)
    elif job.state in ACTIVE:
        claim = nodes[leaving[0]].isolation.claims[0]
        reason = (
            f"{', '.join(leaving)} {'is' if len(leaving) == 1 else 'are'} drained: {claim.reason}"
        )
        _want(turn, job, Planned(PlannedKind.DRAIN, claim.owner, reason, 0, 0))


def _plan_move(turn: Reconciliation, job: JobRecord) -> None:
    wish = moves.begin(turn, job)
    if wish is not None:
        _want(turn, job, wish)


def _plan_growth(turn: Reconciliation, job: JobRecord) -> None:
    timer = f"{TimerKind.GROWTH}/{job.id}"
    if not may_grow(turn, job):
        if job.growable_since_ns:
            job.growable_since_ns = 0
            turn.drop_timer(timer)
        return
    settings = turn.state.settings
    job.growable_since_ns = job.growable_since_ns or turn.now_ns
    due_ns = job.growable_since_ns + settings.growth_delay_ns
    if job.grown_ns:
        due_ns = max(due_ns, job.grown_ns + settings.growth_interval_min_ns)
    if turn.now_ns >= due_ns:
        size = grown_size(turn.state, job)
        reason = (
            f"nodes have come back: {job.name} grows from {len(job.generation.members)} to {size}"
        )
        _want(turn, job, Planned(PlannedKind.GROWTH, "automation", reason, 0, 0))
    elif timer not in turn.state.timers:
        turn.set_timer(timer, due_ns - turn.now_ns)


def _reach_boundary(turn: Reconciliation, job: JobRecord) -> None:
    """Choose the step of what is planned, and stop the job when it is reached."""
    wish = job.planned
    if wish is None or _waits(turn, job, wish):
        return
    if job.state not in STEPPING:
        _leave_beginning(turn, job, wish)
        return
    if not restore_point.has_state(job):
        reached = wish.after_step is None or (job.lineage.last_step or 0) >= wish.after_step
        if reached:
            _stop(turn, job, "it makes no snapshots")
        return
    newest = -1 if job.lineage.last_step is None else job.lineage.last_step
    if wish.after_step is None or too_far(turn.state, job, wish, newest):
        wish.after_step = newest + margin(turn.state, job)
        turn.drop_timer(f"{TimerKind.PLANNED}/{job.id}")
        turn.announce(job.name, "StepPlanned", f"{job.name}: {describe(job, wish)}")
    if is_reached(job, wish.after_step):
        _stop(turn, job, f"step {job.lineage.recoverable_step} is recoverable")
    elif not _stands_still(turn, job, wish):
        _await_boundary(turn, job, wish.after_step <= newest + margin(turn.state, job))


def _leave_beginning(turn: Reconciliation, job: JobRecord, wish: Planned) -> None:
    """Stop a job of which an operator wants it at any step, and that makes none for a while."""
    if job.state not in BEGINNING or not wish.is_at_any_step:
        return
    at_ns, timer = min(wish.ordered_ns, job.awaited.since_ns) + _STILL_NS, TimerKind.STILL
    if timer in job.news.due and turn.now_ns >= at_ns:
        _stop(turn, job, f"it is {job.state.value} and has made no step since it was started")
    elif not turn.has_timer(timer, job.id):
        turn.set_timer(f"{timer}/{job.id}", max(0, at_ns - turn.now_ns))


def _waits(turn: Turn, job: JobRecord, wish: Planned) -> bool:
    """Return whether nothing is done about it now, not even a step chosen."""
    moves_late = wish.kind is PlannedKind.MOVE and not moves.may_leave(turn.state, wish)
    return moves_late or _waits_for_automation(turn, job, wish)


def _waits_for_automation(turn: Turn, job: JobRecord, wish: Planned) -> bool:
    """Return whether it waits because automation is paused; that a job ends is no automation."""
    return bool(turn.paused(job.name)) and wish.kind is not PlannedKind.STOP


def _await_boundary(turn: Turn, job: JobRecord, near: bool) -> None:
    timer = f"{TimerKind.PLANNED}/{job.id}"
    if near and timer not in turn.state.timers:
        turn.set_timer(timer, turn.state.settings.planned_restart_timeout_ns)


def _stands_still(turn: Reconciliation, job: JobRecord, wish: Planned) -> bool:
    """Stop a job that makes no steps, such as one with a rank that hangs; return whether it is."""
    at_ns = still_from_ns(job, wish)
    if at_ns is None:
        return False
    if turn.now_ns < at_ns:
        timer = f"{TimerKind.STILL}/{job.id}"
        if turn.state.timers.get(timer, at_ns + 1) > at_ns:
            turn.set_timer(timer, at_ns - turn.now_ns)
        return False
    last, newest = job.lineage.last_step, job.lineage.recoverable_step
    kept = "which is recoverable" if last == newest else f"and {newest} is the newest recoverable"
    kept = "and none is recoverable" if newest is None else kept
    _stop(turn, job, f"no step was made since step {last}, {kept}")
    return True


def _stop(turn: Reconciliation, job: JobRecord, why: str) -> None:
    wish = job.planned
    if wish is None:
        return
    turn.drop_timer(f"{TimerKind.PLANNED}/{job.id}")
    if nothing := why_pointless(turn.state, job, wish):
        _drop(turn, job, nothing)
        return
    cause = _cause_of(wish)
    if wish.kind is PlannedKind.STOP:
        job.ending.wanted = by_operator(wish.by, wish.reason)
    if cause is Cause.GROWTH:
        job.grown_ns = turn.now_ns
    if wish.kind in (PlannedKind.GROWTH, PlannedKind.MOVE):
        budgets.record_stop(turn, job)
    # Ranks stood still from the end of the last step on.
    held = job.ledger.steps and job.lineage.last_step == wish.after_step
    at_ns = job.ledger.steps[-1].end_ns if held else turn.now_ns
    message = f"planned ({wish.kind}, {wish.by}): {wish.reason}; {why}"
    left = drained(turn.state, job) if wish.kind is PlannedKind.DRAIN else []
    node = left[0] if len(left) == 1 else wish.leaves
    incidents.judge_fault(turn, job, JobFault(min(at_ns, turn.now_ns), cause, node, message))


def _cause_of(wish: Planned) -> Cause:
    """Return the cause of the incident that a planned restart is."""
    match wish.kind:
        case PlannedKind.RESTART | PlannedKind.STOP:
            return Cause.OPERATOR
        case PlannedKind.DRAIN:
            return Cause.MAINTENANCE if wish.by == MAINTENANCE else Cause.DRAIN
        case PlannedKind.MOVE:
            return Cause.DRAIN
        case PlannedKind.GROWTH:
            return Cause.GROWTH


def cancel_problem(state: State, job: JobRecord) -> str:
    """Return why no restart of a job can be taken back, in one sentence; empty when one can."""
    wish = job.planned
    if job.state in OVER:
        return f"{job.name} has ended; nothing of it is planned any more"
    if wish is None:
        became = f"'everstep events --subject {job.name}' tells what became of one"
        return f"no restart of {job.name} is planned; {became}"
    if not wish.is_of_operator or job.ending.asked_on:
        undo = forecast.undo(state, job, wish)
        return f"nobody ordered a restart of {job.name}, but {wish.reason}; to undo that: {undo}"
    if job.state not in ACTIVE:
        then = "ends" if wish.kind is PlannedKind.STOP else "starts anew as it is"
        return f"it is too late: {job.name} is {job.state.value}, and {then}"
    return ""


def restart_cancelled(turn: Turn, event: RestartCancelled) -> None:
    """Forget the restart. What else is wanted of the job, a drain perhaps, is planned anew."""
    job = turn.state.job(event.job)
    if job is None or job.planned is None or cancel_problem(turn.state, job):
        return
    wish, job.planned = job.planned, None
    turn.drop_timer(f"{TimerKind.PLANNED}/{job.id}")
    why = f": {event.reason}" if event.reason else ""
    turn.announce(
        job.name,
        "RestartCancelled",
        f"{event.operator} took back the {wish.kind} of {job.name} that {wish.by} had ordered "
        f"({wish.reason}){why}",
    )


# All agents hear of the chosen step within a second, and ranks that are not snapshotted at every
# step ask them each two (the agent's vault/snapshots/cadence.py): before any has passed it.
_LEAD_NS = 3_000_000_000

# Ranks without an agent read of it in the job's folder, as in the vault's absent_saving.py.
_ABSENT_LEAD_NS = 10_000_000_000

_STEPS_COUNTED = 9

# A step is chosen anew, and all agents told, only when it is this many times as far as need be.
_FAR_MARGINS = 2

# A job without a step for this long hangs, or does something for which an operator who wants a
# restart now does not wait (an evaluation, a compilation). Earlier, copies of its newest step may
# still arrive.
_STILL_NS = 10_000_000_000

# It is known by steps alone when one takes this many times as long as usual; with all of them
# safe, and for longer than this many of them, it is not even waited for after the order.
_STILL_STEPS = 2
_STILL_SAFE_STEPS = 10


def margin(state: State, job: JobRecord) -> int:
    """Return how many steps pass while all ranks hear which one is the last."""
    step_ns = usual_step_ns(job)
    alone = unsaved.has_folder(job) and doubtful_members(state, job)
    lead_ns = _ABSENT_LEAD_NS if alone else _LEAD_NS
    return 2 + (math.ceil(lead_ns / step_ns) if step_ns > 0 else 0)


def too_far(state: State, job: JobRecord, wish: Planned, newest: int) -> bool:
    """Return whether a nearer step would do.

    The first steps of a generation are told late, at once, and look shorter than they were, so that
    a step chosen by them is far away.
    """
    assert wish.after_step is not None
    return not wish.named and wish.after_step - newest > _FAR_MARGINS * margin(state, job)


def is_reached(job: JobRecord, step: int) -> bool:
    """Return whether a step can be restored, and counts: its row may come after its copies."""
    restorable = job.lineage.recoverable_step is not None and job.lineage.recoverable_step >= step
    return restorable and (job.lineage.last_step is None or job.lineage.last_step >= step)


def still_from_ns(job: JobRecord, wish: Planned) -> int | None:
    """Return when a restart waits for no more steps, unless one is made before; None: it waits.

    Only what an operator orders at any step: whether its ranks hang, evaluate or are in a pause,
    the last recoverable step stays, and what they do now is not waited for. Ranks that are held
    after the chosen step only wait for its copies, and so does the restart.
    """
    if not wish.is_at_any_step:
        return None
    due_ns = wish.ordered_ns + _STILL_NS
    waits = [due_ns] if job.state is JobState.STALLED else []
    held = wish.after_step is not None and (job.lineage.last_step or 0) >= wish.after_step
    if not held and _all_say_to_stand(job):
        waits.append(due_ns)
    if job.ledger.steps and not held:
        last_ns, step_ns = job.ledger.steps[-1].end_ns, usual_step_ns(job)
        waits.append(max(due_ns, last_ns + max(_STILL_NS, _STILL_STEPS * step_ns)))
        if job.lineage.recoverable_step == job.lineage.completed_step is not None:
            waits.append(last_ns + max(_STILL_NS, _STILL_SAFE_STEPS * step_ns))
    return min(waits, default=None)


def _all_say_to_stand(job: JobRecord) -> bool:
    """Return whether every member says that its ranks stand still, whether that is usual or not."""
    generation, last = job.generation, job.lineage.last_step
    told = [one.step for one in generation.still.values()]
    if not told or len(told) + len(generation.finished) < len(generation.members):
        return False
    return all(step is None or last is None or last <= step for step in told)


def why_pointless(state: State, job: JobRecord, wish: Planned) -> str:
    """Return why a restart would change nothing now, in one sentence; empty where it would.

    Whatever the job was to go to may be gone since it was planned.
    """
    if wish.kind is PlannedKind.GROWTH and grown_size(state, job) <= len(job.generation.members):
        return f"no node waits for {job.name} any more"
    if wish.kind is PlannedKind.GROWTH and budgets.is_stopped_too_often(state, job):
        return f"{job.name} was stopped {state.settings.job_stops_per_hour} times within an hour"
    if wish.kind is PlannedKind.MOVE and wish.leaves in state.nodes:
        return moves.problem(state, job, state.nodes[wish.leaves])
    leaving = forecast.drained(state, job) if wish.kind is PlannedKind.DRAIN else []
    if not leaving or any(state.nodes[name].vacated for name in leaving):
        return ""
    if forecast.plan_without(state, job, set(state.index.draining))[0]:
        return ""
    return forecast.forecast(state, job, leaving[0])


def usual_step_ns(job: JobRecord) -> int:
    """Return how long a step takes of late; 0 where none was measured."""
    # A single step says little: one that follows a long one is told late, and looks short.
    recent = [step.end_ns - step.start_ns for step in job.ledger.steps[-_STEPS_COUNTED:]]
    return median_high(recent) if recent else 0


def may_grow(turn: Turn, job: JobRecord) -> bool:
    """Return whether nodes wait that a running job wants; without snapshots it would lose all."""
    return (
        job.state is JobState.RUNNING
        and job.spec.reform
        and len(job.generation.members) + job.spec.replica_nodes
        <= min(job.spec.nodes_max, len(job.launchers))
        and not (job.planned or job.ending.wanted)
        and not budgets.is_stopped_too_often(turn.state, job)
        and not turn.paused(job.name)
        and not unsaved.is_unsaved(job)
        and restore_point.has_state(job)
        and grown_size(turn.state, job) > len(job.generation.members)
    )


def grown_size(state: State, job: JobRecord) -> int:
    """Return on how many nodes the job could run: whole replicas of its model."""
    more = min(job.spec.nodes_max - len(job.generation.members), len(_waiting(state, job)))
    return len(job.generation.members) + more - more % job.spec.replica_nodes


def _waiting(state: State, job: JobRecord) -> list[NodeRecord]:
    members = frozenset(job.generation.members)
    able = planning.candidates(state, job)
    return [node for node in able if node.name not in members and not node.isolation.deferred]


HANDLERS: Handlers = {
    events.RestartOrdered: restart_ordered,
    events.StopOrdered: stop_ordered,
    events.RestartCancelled: restart_cancelled,
}
TIMERS: Timers = job_timers(TimerKind.PLANNED, TimerKind.STILL, TimerKind.GROWTH)
