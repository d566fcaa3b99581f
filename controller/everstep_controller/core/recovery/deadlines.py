"""Deadlines of jobs: a node whose agent is connected and does not answer holds up no job for ever.

It is asked again after half of the time that the table gives it (jobs/lifecycle.py), and then
counts as gone for the job, like one that is lost: a spare takes its place, and what it may still
run is fenced until it says that it is gone. Whoever comes late to a phase is asked as well: one
that answers is waited for as long as restoring may take.
"""

from collections.abc import Iterable

from everstep_controller.core.actions import Order
from everstep_controller.core.jobs import incidents, membership, orders, restore_point
from everstep_controller.core.jobs.lifecycle import ACTIVE, WAITS
from everstep_controller.core.jobs.progress import ORDER
from everstep_controller.core.jobs.transition import answer_patience_ns
from everstep_controller.core.model.job import Cause, Generation, JobFault, JobRecord, JobState
from everstep_controller.core.model.state import State
from everstep_controller.core.model.timers import Overdue
from everstep_controller.core.nodes import unanswered_orders
from everstep_controller.core.recovery import planning
from everstep_controller.core.registry import Timers, job_timers
from everstep_controller.core.turn import Reconciliation, TimerKind

_S = 1_000_000_000
_DOUBLED_MAX = 16
# Number of nodes that a sentence names.
_NAMED_MAX = 3


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Look, when it is time, at who has not answered what a job waits for."""
    if TimerKind.ANSWER not in job.news.due or WAITS[job.state].timer is not TimerKind.ANSWER:
        return
    if turn.paused(job.name):
        _look_again(turn, job, _half_ns(turn.state, job))
    elif job.state in (JobState.REPLANNING, JobState.WAITING_STATE):
        _press_catalogue(turn, job)
    else:
        _press_nodes(turn, job)


def _half_ns(state: State, job: JobRecord) -> int:
    return answer_patience_ns(state, job) // 2


def _look_again(turn: Reconciliation, job: JobRecord, after_ns: int) -> None:
    turn.set_timer(f"{TimerKind.ANSWER}/{job.id}", after_ns)


# --- what nodes hold ------------------------------------------------------------------------------


def _press_catalogue(turn: Reconciliation, job: JobRecord) -> None:
    """Ask the catalogue again; after that, for what it knows of those that have told."""
    job.generation.holdings_overdue = job.awaited.rounds > 0
    job.awaited.rounds += 1
    turn.order(restore_point.choose_step(turn.state, job))
    _look_again(turn, job, _interval_ns(turn.state, job))


# --- what members do ------------------------------------------------------------------------------


def _press_nodes(turn: Reconciliation, job: JobRecord) -> None:
    """Ask whoever has not answered again; whoever was asked and has not answered counts as gone."""
    awaited = job.awaited
    missing = missing_answers(turn.state, job)
    quiet_ns = turn.now_ns - max(awaited.since_ns, awaited.heard_ns, awaited.asked_ns)
    wait_ns = _interval_ns(turn.state, job) - quiet_ns
    if wait_ns > 0:
        _look_again(turn, job, wait_ns)
        return
    silent = [name for name in missing if name in awaited.silent]
    late = silent or _late_members(turn, job)
    if not late or not _count_as_gone(turn, job, late, asked=bool(silent)):
        _tell_of_warmup(turn, job)
        _ask_again(turn, job, missing)


def missing_answers(state: State, job: JobRecord) -> list[str]:
    """Return the connected nodes from which a job in its state waits for something.

    Of nodes that are away, liveness judges.
    """
    generation, nodes = job.generation, state.nodes
    names: Iterable[str] = ()
    if job.state is JobState.STOPPING:
        names = (name for name in generation.members if name not in generation.stopped)
    elif job.state is JobState.WAITING_CAPACITY:
        names = (name for name, one in job.launchers.items() if one.stale_generation)
    elif job.state in ACTIVE:
        names = _behind(generation)
    return [
        name for name in names if nodes[name].liveness.connected and not nodes[name].unreachable
    ]


def _behind(generation: Generation) -> list[str]:
    """Return the members that have come least far; all of them where they are equally far."""
    phases = generation.phases
    left = [name for name in generation.members if name not in generation.finished]
    if absent := [name for name in left if name not in phases]:
        return absent
    least = min((ORDER[phases[name]] for name in left), default=0)
    return [name for name in left if ORDER[phases[name]] == least]


def _interval_ns(state: State, job: JobRecord) -> int:
    """Return how long nobody is asked again: ever longer from the second time on."""
    half_ns, doubled = _half_ns(state, job), min(max(0, job.awaited.rounds - 1), _DOUBLED_MAX)
    return min(half_ns << doubled, max(half_ns, state.settings.warmup_timeout_ns))


def _late_members(turn: Reconciliation, job: JobRecord) -> list[str]:
    """Return the members whose ranks are behind others for longer than restoring may take."""
    awaited, behind = job.awaited, _behind(job.generation)
    quiet_ns = turn.now_ns - max(awaited.since_ns, awaited.heard_ns)
    late = job.state in ACTIVE and quiet_ns >= turn.state.settings.restore_timeout_ns
    return behind if late and len(behind) < len(job.generation.members) else []


def _ask_again(turn: Reconciliation, job: JobRecord, missing: list[str]) -> None:
    awaited = job.awaited
    awaited.asked_ns, awaited.silent = turn.now_ns, dict.fromkeys(missing, True)
    awaited.rounds += 1
    turn.order(*(_order(turn.state, job, name) for name in missing))
    _look_again(turn, job, _interval_ns(turn.state, job))


def _order(state: State, job: JobRecord, name: str) -> Order:
    """Return what a node was ordered; it answers again where it has done it."""
    if job.state in ACTIVE:
        return orders.start(job, name)
    stopping = job.state is JobState.STOPPING
    number = job.generation.number if stopping else job.launchers[name].stale_generation
    return orders.stop(state, job, name, number)


def _count_as_gone(turn: Reconciliation, job: JobRecord, names: list[str], *, asked: bool) -> bool:
    """Go on without members that do not answer, where that is possible; people are told anyway."""
    if Overdue.COUNT_AS_GONE not in WAITS[job.state].on_deadline:
        return False
    message = _sentence(turn, job, names, asked=asked)
    for name in names if asked else ():
        unanswered_orders.record_unanswered(turn, turn.state.nodes[name], message)
    if job.state in ACTIVE and not _may_leave(turn.state, job, names):
        _tell_once(turn, job, "MemberOverdue", f"{message}; {_next_step(job, names)}")
        return False
    if job.state in ACTIVE:
        onset_ns = max(job.awaited.since_ns, job.awaited.heard_ns)
        fault = JobFault(onset_ns, Cause.NODE, names[0], message)
        incidents.judge_fault(turn, job, fault)
    else:
        turn.announce(job.name, "MemberOverdue", f"{message}; {job.name} goes on without it")
    for name in names:
        job.overdue[name] = job.generation.number
        membership.fence_member(job, name)
    turn.mark_job(job.id, moved=True)
    return True


def _may_leave(state: State, job: JobRecord, names: list[str]) -> bool:
    """Return whether a job does better without members: it has not stepped, and has others.

    Ranks of a script that does not use the library may train, and never say so.
    """
    started = len(job.generation.phases) == len(job.generation.members)
    alike = len(_behind(job.generation)) == len(job.generation.members)
    if job.state is JobState.STARTING and started and alike:
        return False
    known = [*planning.candidates(state, job), *planning.last_resorts(state, job)]
    able = [node for node in known if node.name not in names]
    return bool(planning.place_members(state, job, able)[0])


def _sentence(turn: Reconciliation, job: JobRecord, names: list[str], *, asked: bool) -> str:
    awaited, number = job.awaited, job.generation.number
    waited_s = (turn.now_ns - max(awaited.since_ns, awaited.heard_ns)) // _S
    shown, more = ", ".join(names[:_NAMED_MAX]), len(names) - _NAMED_MAX
    who = f"{shown} and {more} more" if more > 0 else shown
    what = "stopped" if job.state is JobState.STOPPING else _phase_due(job, names[0])
    why = "connected, and does not answer orders" if asked else "behind the others"
    return f"{who}: {why}: has not {what} generation {number} of {job.name} after {waited_s} s"


def _phase_due(job: JobRecord, name: str) -> str:
    if name not in job.generation.phases:
        return "started"
    return "made a step in" if job.state is JobState.WARMING else "restored"


def _next_step(job: JobRecord, names: list[str]) -> str:
    return (
        f"there is no spare for it, so {job.name} waits: start another launcher of the job, or "
        f"restart the agent: 'systemctl restart everstep-agent' on {names[0]}"
    )


def _tell_of_warmup(turn: Reconciliation, job: JobRecord) -> None:
    """Tell people, once, of a job that has all its state and makes no step."""
    quiet_ns = turn.now_ns - max(job.awaited.since_ns, job.awaited.heard_ns)
    late = quiet_ns >= turn.state.settings.warmup_timeout_ns
    if job.state is JobState.WARMING and late:
        message = (
            f"{job.name} has made no step for {quiet_ns // _S} s since all ranks have their state; "
            f"to start it anew: everstep job {job.name} restart --reason …"
        )
        _tell_once(turn, job, "JobWarmsLong", message)


def _tell_once(turn: Reconciliation, job: JobRecord, reason: str, message: str) -> None:
    """Tell people what a job waits for, now, and whenever they ask how it is."""
    if not job.awaited.told:
        job.awaited.told, job.reason = True, message
        turn.announce(job.name, reason, message)


TIMERS: Timers = job_timers(TimerKind.ANSWER)
