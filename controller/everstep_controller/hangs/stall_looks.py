"""Looks at a stall: which jobs are looked at, how soon again, and what of it the core is told."""

from dataclasses import dataclass

from everstep_common.hangs.looks import Look, Streak, says_same
from everstep_common.hangs.reports.verdict import HangClass
from everstep_common.printable import brief
from everstep_controller.core.events import HangJudged
from everstep_controller.core.hangs import response
from everstep_controller.core.jobs.lifecycle import BEGINNING
from everstep_controller.core.model.hang import SeenHang
from everstep_controller.core.model.job import JobRecord, JobState

# After the first look the next one comes so soon, each further one after twice as long, and none
# later than that.
FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
# After so many verdicts on one stall, another one is told so long after the last: 64 KB each.
_TELLINGS_SOON = 16
_TOLD_LATER_S = 600
# Ranks that load wait for one another in turn: of a job that has made no step yet, who may go on by
# itself is named when no rank has moved for so long.
_BEGINNING_UNMOVED_S = 60
_S = 1_000_000_000
_MS = 1_000_000

# Job, generation, and when it was found to stand still, or was started.
Stall = tuple[str, int, int]


@dataclass(slots=True)
class Known:
    """What is known of a stall: the looks in a row, and what the core was told last."""

    streak: Streak | None = None
    told: Look | None = None
    told_looks: int = 0
    told_ns: int = 0
    # How often.
    tellings: int = 0

    def note_told(self) -> None:
        """Note that the core was told of the newest look."""
        assert self.streak is not None
        self.told, self.told_looks = self.streak.newest, self.streak.looks
        self.told_ns, self.tellings = self.streak.newest.at_ns, self.tellings + 1


def is_looked_at(job: JobRecord, now_ns: int) -> bool:
    """Return whether a job stands still, as people are told or not, or does not begin for long."""
    from_ns = response.due_from_ns(job)
    return from_ns is not None and from_ns <= now_ns


def stall_of(job: JobRecord) -> Stall:
    """Return what the looks at a job are about."""
    return job.id, job.generation.number, response.due_from_ns(job) or 0


def is_news(known: Known, due_ns: int, now_ns: int, *, begins: bool = False) -> bool:
    """Return whether the core decides anything by the newest look that it has not decided already.

    ``due_ns`` is when the core acts on what is found then; 0: never. ``begins``: the job has made
    no step since it was started.
    """
    assert known.streak is not None
    newest = known.streak.newest
    unmoved_ns = newest.at_ns - known.streak.unmoved_since_ns
    if begins and not newest.stuck and unmoved_ns < _BEGINNING_UNMOVED_S * _S:
        return False
    if known.told is None:
        return newest.verdict.kind is not HangClass.NO_WAIT
    if 0 < due_ns <= now_ns:
        return True
    if _tells_same(known.told, newest):
        return known.told_looks < 2 <= known.streak.looks
    # Each is journaled, and what ranks tell may be another thing each time.
    return known.tellings < _TELLINGS_SOON or now_ns - known.told_ns >= _TOLD_LATER_S * _S


def _tells_same(told: Look, newest: Look) -> bool:
    """Return whether two looks find the same, and give a culprit the same time."""
    same = told.pause == newest.pause and told.works == newest.works
    return same and says_same(told.verdict, newest.verdict)


def is_news_of(job: JobRecord, known: Known, now_ns: int) -> bool:
    """Return the same of a job: while it runs, only where it stands and who is stuck is news."""
    if job.state is not JobState.RUNNING:
        return is_news(known, job.hang.due_ns, now_ns, begins=job.state in BEGINNING)
    assert known.streak is not None
    told, newest = known.told, known.streak.newest
    return told is None or told.place != newest.place or told.stuck != newest.stuck


def word_of(job: JobRecord, known: Known, evidence: str) -> HangJudged:
    """Return what the core is told of the newest look, with the hash of its evidence."""
    assert known.streak is not None
    streak = known.streak
    newest = streak.newest
    seen = SeenHang(
        verdict=newest.verdict,
        evidence=evidence,
        stuck=newest.stuck,
        looks=streak.looks,
        same_ns=newest.at_ns - streak.same_since_ns,
        unmoved_ns=newest.at_ns - streak.unmoved_since_ns,
        pause=newest.pause,
        place=newest.place,
        held_ns=newest.held_ms * _MS,
        works=newest.works,
        failure=newest.failure,
        devices=newest.devices,
    )
    sentence = brief(newest.verdict.sentence)
    if newest.verdict.kind is HangClass.NO_WAIT and known.told is not None:
        sentence = f"what was found before is no longer so: {sentence}"
    return HangJudged(job.id, job.generation.number, sentence, seen)


def pause_s(job: JobRecord, usual_s: float, now_ns: int) -> float:
    """Return how long until the next look, which is no later than the core acts on it."""
    if job.state is JobState.RUNNING and job.hang.seen is not None:
        return _LONGEST_PAUSE_S  # where it stands is usual: who stops there is seen then
    if not job.hang.due_ns:
        return usual_s
    due_s = (job.hang.due_ns - now_ns) / _S
    return min(usual_s, max(due_s, FIRST_PAUSE_S))


def longer_pause_s(usual_s: float) -> float:
    """Return the pause after one that was so long."""
    return min(2 * usual_s, _LONGEST_PAUSE_S)
