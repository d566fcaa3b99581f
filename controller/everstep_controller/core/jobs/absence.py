"""Absence of agents: a job stands still while a member's agent is away, and goes on without it.

A member without its agent may train on: while steps are made nothing is touched. When ranks have
failed or steps are missing, nobody waits for the verdict on the node. When others have ended well,
its agent is waited for, to say that its ranks have, too.
"""

from everstep_common.failures.classification import FOLLOWING, Side, side
from everstep_common.reports import Phase
from everstep_controller.core.jobs import incidents, membership, progress, unsaved
from everstep_controller.core.jobs.lifecycle import ACTIVE, STEPPING
from everstep_controller.core.model.job import Cause, JobFault, JobRecord, JobState, PlannedKind
from everstep_controller.core.model.node import NodeRecord
from everstep_controller.core.model.state import State, doubtful_members
from everstep_controller.core.nodes import quorum
from everstep_controller.core.registry import Timers, job_timers
from everstep_controller.core.turn import Reconciliation, TimerKind

_S = 1_000_000_000
# Ranks wait so long for an agent at work whose stream is away, and a second for one that stands
# still; then they step on, unsaved.
_AGENT_WAIT_NS = 10 * _S
# Steps are missing when none was made for that time and so many times the longest of late, or …
_LONGEST_TIMES = 4
_MISSING_MIN_NS = 2 * _S
_LOOK_AGAIN_NS = 5 * _S
# Where all ranks of another member have ended well, most likely those of the absent agent have as
# well: a restart would make steps again of a job that has none left. So its agent is waited for as
# long as that would take: that costs at most twice what the better choice would have. For an
# upgrade at least, as for a script that makes no snapshots; and for an hour at most.
_ENDED_MIN_NS, _ENDED_MAX_NS = 60 * _S, 3600 * _S
# Ranks that move away from an absent agent wait for a while at the step that is saved for it, as
# long as their script lets them: a stop by then would cost that step and those before it.
_HELD_NS = 60 * _S
# Ranks that die of these may have lost one that nobody tells of.
_FOLLOWS = FOLLOWING | {Side.TRANSIENT}


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Count on no answer of a member without its agent; stop a job that stands still by that."""
    if job.state is JobState.STOPPING:
        away = _doubtful(turn.state, job)
        _blame_absence(turn, job, away)
        for node in away:
            membership.fence_member(job, node.name)
    timer = f"{TimerKind.UNTOLD}/{job.id}"
    if job.state not in ACTIVE or not doubtful_members(turn.state, job):
        turn.drop_timer(timer)
    elif timer not in turn.state.timers:
        _judge_absence(turn, job, _doubtful(turn.state, job))


def _blame_absence(turn: Reconciliation, job: JobRecord, away: list[NodeRecord]) -> None:
    """Have the node of an absent agent be the cause, where ranks died of nothing of their own.

    A node that dies whole tells nothing; the ranks of the others lose their connections to it.
    """
    number = job.generation.number
    deaths = [death for death in job.recovery.deaths if death.exit.generation == number]
    if not deaths or any(side(death.exit.kind) not in _FOLLOWS for death in deaths):
        return
    told = {death.node for death in deaths}
    for node in away:
        if node.name not in told and not node.liveness.silence.leaving:
            message = f"{node.name} went away: {node.liveness.silence.doubt}"
            fault = JobFault(node.liveness.silent_since_ns, Cause.NODE, node.name, message)
            incidents.judge_fault(turn, job, fault)


def _doubtful(state: State, job: JobRecord) -> list[NodeRecord]:
    """Return the doubtful members in rank order."""
    names = sorted(doubtful_members(state, job), key=job.generation.members.place)
    return [state.nodes[name] for name in names]


def _judge_absence(turn: Reconciliation, job: JobRecord, away: list[NodeRecord]) -> None:
    """Stop the job if it has stood still for long enough; else look again."""
    since_ns = _still_since_ns(turn, job, away)
    if since_ns is None or turn.paused(job.name):
        turn.set_timer(f"{TimerKind.UNTOLD}/{job.id}", _LOOK_AGAIN_NS)
        return
    wait_ns = since_ns + _patience_ns(turn.state, job) - turn.now_ns
    if wait_ns > 0:
        turn.set_timer(f"{TimerKind.UNTOLD}/{job.id}", wait_ns)
        return
    node = away[0]
    still_s = (turn.now_ns - since_ns) / _S
    what = "no step" if job.state in STEPPING else f"still {job.state.value}"
    message = (
        f"{what} for {still_s:.1f} s while {node.name} is doubtful: {node.liveness.silence.doubt}"
    )
    fault = JobFault(max(since_ns, node.liveness.silent_since_ns), Cause.NODE, node.name, message)
    incidents.judge_fault(turn, job, fault)
    for one in away:
        membership.fence_member(job, one.name)


def _still_since_ns(turn: Reconciliation, job: JobRecord, away: list[NodeRecord]) -> int | None:
    """Return since when nothing of the job has moved; None where nobody could tell."""
    doubted_ns = min(node.liveness.silence.doubted_ns for node in away)
    if job.state not in STEPPING:
        return doubted_ns
    missing = {node.name for node in away}
    phases = job.generation.phases
    # Ranks that have called in tell their own steps. From a controller that may be cut off a stream
    # looks open for many seconds that is not: there it takes the word that ranks stand still.
    cut_off, still = quorum.may_be_cut_off(turn.state), job.generation.still
    attached = (name for name, phase in phases.items() if _tells_steps(phase))
    there = (
        one for one in attached if one not in missing and turn.state.nodes[one].liveness.connected
    )
    told = any(not cut_off or name in still for name in there)
    return max(job.ledger.steps[-1].end_ns, doubted_ns) if told and job.ledger.steps else None


def _tells_steps(phase: Phase) -> bool:
    return progress.ORDER[phase] >= progress.ORDER[Phase.ATTACHED]


def _patience_ns(state: State, job: JobRecord) -> int:
    """Return how long nothing of a job may move while an agent is away."""
    if job.state not in STEPPING:
        return state.settings.agent_return_ns
    if job.generation.finished:
        return min(max(unsaved.time_at_risk_ns(job), _ENDED_MIN_NS), _ENDED_MAX_NS)
    if _is_held(job):
        return _HELD_NS
    longest_ns = job.ledger.steps.longest_ns()
    return _AGENT_WAIT_NS + max(_MISSING_MIN_NS, _LONGEST_TIMES * longest_ns)


def _is_held(job: JobRecord) -> bool:
    """Return whether ranks have come to the step at which they move."""
    wish, last = job.planned, job.lineage.last_step
    if wish is None or wish.kind is not PlannedKind.MOVE or wish.after_step is None:
        return False
    return last is not None and last >= wish.after_step


TIMERS: Timers = job_timers(TimerKind.UNTOLD)
