"""Stands of a job that makes no step: which ones people are told of, and after how long.

A job whose nodes all stand still is looked at. Where it has stood before and gone on by itself, at
the place at which it is found, it is left alone for as long as that is usual there; everywhere
else, and where no look answers, it is stalled. Where steps alone say it, a print may be late: that
is waited for unless a look sees somebody hold the others back.
"""

from everstep_common.hangs.reports.verdict import HangClass
from everstep_controller.core.jobs.lifecycle import JobEvent
from everstep_controller.core.jobs.transition import move_job, remember_stand
from everstep_controller.core.model.hang import Hang, SeenHang, usual_stand_ns
from everstep_controller.core.model.job import JobRecord
from everstep_controller.core.registry import Timers, job_timers
from everstep_controller.core.turn import Reconciliation, TimerKind

_MS = 10**6
# A look at ranks that live is answered and judged in half a second, and what does not answer is
# unusual by that alone. Of thousands of nodes it takes seconds.
_LOOK_NS = 1_300 * _MS
_LOOK_PER_NODE_NS = 3 * _MS
# A print that is late by as many times what steps take is none; pipes and file systems keep one
# back for seconds.
_BLIND_TIMES = 3
_BLIND_LEAST_NS = 15_000 * _MS


def note_stand(turn: Reconciliation, job: JobRecord, sentence: str) -> None:
    """All nodes of a job that runs say that their ranks stand still."""
    hang, since_ns = job.hang, max(one.since_ns for one in job.generation.still.values())
    until_ns = _left_alone_until_ns(turn, job, since_ns)
    if turn.now_ns < until_ns:
        hang.found_ns, hang.onset_ns = hang.found_ns or turn.now_ns, since_ns
        if until_ns != hang.usual_until_ns:
            hang.usual_until_ns = until_ns
            turn.set_timer(f"{TimerKind.STAND}/{job.id}", until_ns - turn.now_ns)
        return
    reason = f"{sentence}; {hang.sentence}" if hang.sentence else sentence
    move_job(turn, job, JobEvent.STALLED, reason)
    found = job.hang
    found.by_word, found.found_ns, found.places = True, hang.found_ns, hang.places
    if hang.seen is not None:
        found.seen, found.seen_ns = hang.seen, hang.seen_ns
        job.news.hang_seen = True
        if hang.sentence:
            turn.announce(job.name, "HangJudged", f"{job.name}: {hang.sentence}")


def _left_alone_until_ns(turn: Reconciliation, job: JobRecord, since_ns: int) -> int:
    """Return until when that is usual, or not known to be unusual; 0: it is unusual."""
    known, seen = job.recovery.usual_stands, job.hang.seen
    told = job.generation.still.values()
    blind = any(one.blind for one in told)
    if not known and not blind:
        return 0
    if seen is None:
        wait_ns = _LOOK_NS + _LOOK_PER_NODE_NS * len(job.generation.members)
        return (job.hang.found_ns or turn.now_ns) + wait_ns
    if seen.failure or _cannot_go_on(seen):
        return 0
    usual_ns = usual_stand_ns(known, seen.place, turn.now_ns)
    if blind and seen.verdict.kind is HangClass.NO_WAIT:
        late_ns = _BLIND_TIMES * max(one.usual_ns for one in told)
        usual_ns = max(usual_ns, late_ns, _BLIND_LEAST_NS)
    return since_ns + usual_ns


def _cannot_go_on(seen: SeenHang) -> bool:
    return bool(seen.stuck) or (seen.is_sure and seen.verdict.kind is HangClass.DESYNC)


def note_end(turn: Reconciliation, job: JobRecord) -> None:
    """A job goes on of whose stand nobody was told."""
    if job.hang.found_ns:
        turn.drop_timer(f"{TimerKind.STAND}/{job.id}")
        remember_stand(job, turn.now_ns - job.hang.onset_ns, turn.now_ns)
        job.hang = Hang()


TIMERS: Timers = job_timers(TimerKind.STAND)
