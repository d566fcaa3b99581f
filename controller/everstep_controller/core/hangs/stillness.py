"""Stillness of a generation: which nodes say that none of their ranks moves, and since when.

When all of them say so, the job stands still, long before its steps alone would tell. A word that
was given stays until it is taken back, so a node whose agent is away is not waited for.
"""

from itertools import islice

from everstep_common import reports
from everstep_common.reports import RanksGoOn, RanksStandStill
from everstep_controller.core.events import Reported
from everstep_controller.core.hangs import stands
from everstep_controller.core.jobs.lifecycle import ACTIVE, JobEvent
from everstep_controller.core.jobs.progress import watch_steps
from everstep_controller.core.jobs.transition import move_job
from everstep_controller.core.model.hang import StillNode
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.registry import Handlers
from everstep_controller.core.turn import Reconciliation, Turn

_S = 1_000_000_000
# A node whose ranks have made a step has taken its word back after so long: it looks every second.
_TAKEN_BACK_NS = 2 * _S
# The first steps load, compile and spread weights.
_STEPS_LEAST = 3


def ranks_stand_still(turn: Turn, event: Reported[RanksStandStill]) -> None:
    """No rank of a node has moved for longer than it ever does."""
    job = _job_of(turn, event, event.report.generation)
    if job is not None:
        report, since_ns = event.report, min(event.at_ns, turn.now_ns)
        looked_ns = since_ns + max(0, report.looked_boot_ns - report.since_boot_ns)
        job.generation.still[event.origin.node] = StillNode(
            since_ns,
            report.usual_ns,
            report.step,
            report.blind,
            min(looked_ns, turn.now_ns),
            report.young,
        )


def ranks_go_on(turn: Turn, event: Reported[RanksGoOn]) -> None:
    """A rank of a node has moved again."""
    job = _job_of(turn, event, event.report.generation)
    if job is not None:
        job.generation.still.pop(event.origin.node, None)
        job.generation.moving_place = job.generation.members.place(event.origin.node)


def _job_of(
    turn: Turn, event: Reported[RanksStandStill] | Reported[RanksGoOn], generation: int
) -> JobRecord | None:
    """Return the job of whose running generation a member tells; None for any other word."""
    job = turn.state.job(event.job)
    if job is None or job.state not in ACTIVE or generation != job.generation.number:
        return None
    return job if event.origin.node in job.generation.members else None


def reconcile_job(turn: Reconciliation, job: JobRecord) -> None:
    """Take a job on to standing still by the word of its nodes, or back from there.

    Where ranks of some node have ended well it is at its end: then steps that are missing tell.
    """
    if job.state is JobState.RUNNING and not job.planned:
        ends = bool(job.generation.finished)
        if job.generation.still and not ends and _all_stand_still(turn, job):
            stands.note_stand(turn, job, _sentence(turn.now_ns, job))
        else:
            stands.note_end(turn, job)
    elif job.state is JobState.STALLED and job.hang.by_word:
        if len(job.generation.still) + len(job.generation.finished) == len(job.generation.members):
            return  # asked for every word of thousands of nodes
        if not _all_stand_still(turn, job):
            move_job(turn, job, JobEvent.PROGRESSED, "its ranks go on")
            watch_steps(turn, job)


def _all_stand_still(turn: Turn, job: JobRecord) -> bool:
    """Return whether every member that could tell does.

    Thousands tell within a second, so each question goes on from the member that was missing last,
    and all are gone through once more before the answer is yes.
    """
    missing = _first_moving(turn, job, job.generation.moving_place)
    if missing is None and job.generation.moving_place:
        missing = _first_moving(turn, job, 0)
    job.generation.moving_place = missing or 0
    # Where those are away that see the job's moves, the others know nothing.
    return missing is None and not all(one.unseeing for one in job.generation.still.values())


def _first_moving(turn: Turn, job: JobRecord, start: int) -> int | None:
    """Return the place of the first member from there on that has not said to stand still."""
    generation, state, now_ns = job.generation, turn.state, turn.now_ns
    for place, name in enumerate(islice(generation.members, start, None), start):
        if name in generation.finished or _holds(job, generation.still.get(name), now_ns):
            continue
        # Before it is back after a start of the controller, nobody knows what it would say.
        node = state.nodes[name]
        if node.liveness.connected or (
            node.identity.welcomed_term != state.term and not node.unreachable
        ):
            return place
    return None


def _holds(job: JobRecord, word: StillNode | None, now_ns: int) -> bool:
    """Return whether a word was given and no step has been made since; steps are told later.

    Where a node knows no steps, as with most of a script that only prints them, its word is of the
    moment at which its agent looked: a rank that does not run any more tells of no later one. A
    step that ended after that look is none of its ranks', if they did not go on with it.
    """
    if word is None or (word.young and not _makes_steps(job)):
        return False
    if not job.ledger.steps:
        return True
    if word.step is None or job.lineage.last_step is None:
        end_ns = job.ledger.steps[-1].end_ns
        return word.looked_ns >= end_ns or now_ns - end_ns >= _TAKEN_BACK_NS
    return job.lineage.last_step <= word.step


def _makes_steps(job: JobRecord) -> bool:
    """Return whether some steps of this generation are known, by whichever of its nodes."""
    newest = list(islice(reversed(job.ledger.steps), _STEPS_LEAST))
    return len(newest) == _STEPS_LEAST and newest[-1].end_ns > job.generation.began_ns > 0


def since_ns(job: JobRecord) -> int | None:
    """Return when a rank moved last, by the word of all nodes; None where some have given none."""
    told = job.generation.still.values()
    return max((one.since_ns for one in told), default=0) if job.hang.by_word else None


def _sentence(now_ns: int, job: JobRecord) -> str:
    told = job.generation.still.values()
    still_s = (now_ns - max(one.since_ns for one in told)) / _S
    usual_s = max(one.usual_ns for one in told) / _S
    step = _newest_step(job)
    after = "" if step is None else f" since step {step}"
    blind = next((one.blind for one in told if one.blind), "")
    what = "no step" if blind else "no step and no collective"
    unseen = f"; collectives are not seen: {blind}" if blind else ""
    return f"{what} for {still_s:.1f} s{after} (usual: at most {usual_s:.1f} s){unseen}"


def _newest_step(job: JobRecord) -> int | None:
    """Return the newest step of all ranks: where each node tells its own, before the row of it."""
    told = [one.step for one in job.generation.still.values() if one.step is not None]
    of_all = min(told) if len(told) == len(job.generation.members) else None
    return max((one for one in (of_all, job.lineage.last_step) if one is not None), default=None)


HANDLERS: Handlers = {
    reports.RanksStandStill: ranks_stand_still,
    reports.RanksGoOn: ranks_go_on,
}
