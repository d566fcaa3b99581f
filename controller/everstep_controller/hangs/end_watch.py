"""End watch: asks who held up a generation that ended because ranks gave up waiting.

Or that ended over data that did not fit: then who called something else.

Its launchers look at the ranks that have not exited before they kill them, and tell what they saw.
The judge is outside the core; what enters it is one journaled sentence, and the nodes it names.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass
from functools import partial

from everstep_common.hangs.looks import Look
from everstep_common.hangs.ras_answer import MISSING
from everstep_common.hangs.reports.rank_report import ProcessEnding
from everstep_common.hangs.reports.verdict import HangClass, HangVerdict
from everstep_common.printable import brief
from everstep_common.reports import RankExited
from everstep_controller.core.actions import StopGeneration
from everstep_controller.core.events import (
    JournaledEvent,
    RanksExited,
    Reported,
    TimeoutJudged,
    each_event,
)
from everstep_controller.core.jobs.orders import needs_look
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.inspection.hang_judgement import judge_hang
from everstep_controller.inspection.inspector import Inquiry, Inspector, Keep
from everstep_controller.inspection.scheduler import Purpose
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

_NODES_MAX = 16
# Of more generations that end at once, the oldest of the user with most are not asked about.
_WAITING_MAX = 256


@dataclass(frozen=True, slots=True)
class _Ended:
    """A generation whose launchers were told to look, and its members in the order of ranks."""

    job: str
    generation: int
    members: tuple[str, ...]
    user: int


# Looks that are asked for, with their users; the oldest first.
Looks = list[tuple[int, asyncio.Task[None]]]


class EndWatch:
    """Looks, once each, at generations that ended by the timeout of a collective."""

    def __init__(self, runtime: Runtime, inspector: Inspector) -> None:
        self._runtime = runtime
        self._inspector = inspector
        self._asked: dict[str, int] = {}
        self._ended: asyncio.Queue[_Ended] = asyncio.Queue()

    def note_event(self, taken: TakenEvent) -> None:
        """Note the generations that are stopped after a look at them.

        That one is due may be known only when the order is out: a launcher whose rank is giving up
        looks unasked, and who lost the connection by that ended sooner.
        """
        jobs = self._runtime.state.jobs
        for action in taken.actions:
            if isinstance(action, StopGeneration) and action.look:
                self._maybe_note(jobs.get(action.job_id))
        for name in jobs_of_exits(taken.event):
            job = self._runtime.state.job(name)
            if job is not None and job.state is JobState.STOPPING:
                self._maybe_note(job if needs_look(job, job.generation.number) else None)

    def _maybe_note(self, job: JobRecord | None) -> None:
        if job is not None and self._asked.get(job.id) != job.generation.number:
            self._note(job)

    async def run(self) -> None:
        """Ask about each until cancelled."""
        looks: Looks = []
        async with asyncio.TaskGroup() as group:
            while True:
                ended = await self._ended.get()
                looks = [one for one in looks if not one[1].done()]
                if len(looks) >= _WAITING_MAX:
                    give_up_oldest(looks)
                look = group.create_task(self._look(ended), name=f"end of {ended.job}")
                looks.append((ended.user, look))

    def _note(self, job: JobRecord) -> None:
        known = self._runtime.state.jobs
        self._asked = {name: number for name, number in self._asked.items() if name in known}
        self._asked[job.id] = job.generation.number
        members = tuple(job.generation.members)
        ended = _Ended(job.id, job.generation.number, members, job.spec.uid)
        self._ended.put_nowait(ended)

    async def _look(self, ended: _Ended) -> None:
        job = self._known(ended)
        if job is not None:
            await self._inspector.judge(
                Inquiry(
                    Purpose.END,
                    job,
                    ended.members,
                    ended.generation,
                    endings_over_unfit_data(job, ended.generation),
                ),
                lambda file: judge_hang(file, self._runtime.now_ns()),
                partial(self._conclude, job, ended),
                lambda: self._known(ended) is not None,
            )

    def _known(self, ended: _Ended) -> JobRecord | None:
        state = self._runtime.state
        return None if state.halted else state.jobs.get(ended.job)

    async def _conclude(self, job: JobRecord, ended: _Ended, look: Look, keep: Keep) -> None:
        """Tell the core who did not come, where that can be told."""
        sentence, ranks = _told(look.verdict)
        logger.info(
            "job %s, generation %d ended by a timeout: %s",
            *(job.name, ended.generation, sentence or "who did not come is not known"),
        )
        if sentence:
            keep()
            places = sorted({rank // job.spec.processes_per_node for rank in ranks})
            nodes = tuple(ended.members[one] for one in places if one < len(ended.members))
            event = TimeoutJudged(
                job.id,
                ended.generation,
                sentence,
                nodes[:_NODES_MAX],
                is_conclusive=bool(look.verdict.culprits),
            )
            self._runtime.post(event, again=False)


def endings_over_unfit_data(
    job: JobRecord, generation: int
) -> tuple[tuple[int, ProcessEnding], ...]:
    """Return the ranks that got data which did not fit, and how they ended: it tells the class."""
    ends = [
        one.exit
        for one in job.recovery.deaths
        if one.got_unfit_data and one.exit.generation == generation
    ]
    return tuple((end.rank, _ending(end)) for end in ends)


def _ending(end: RankExited) -> ProcessEnding:
    text = end.exception or end.last_line
    return ProcessEnding(end.exit_code, end.signal, end.at_boot_ns, end.kind, text)


def give_up_oldest(looks: Looks) -> None:
    """Give up the oldest look of the user who has most of them: no other user loses one by that."""
    ((user, _),) = Counter(one for one, _ in looks).most_common(1)
    oldest = next(place for place, (one, _) in enumerate(looks) if one == user)
    looks.pop(oldest)[1].cancel()


def jobs_of_exits(event: JournaledEvent) -> tuple[str, ...]:
    """Return the names of the jobs of which ranks ended, each once, in the order of their ends."""
    found: dict[str, None] = {}
    for one in each_event(event):
        match one:
            case RanksExited(job=job) | Reported(report=RankExited(), job=job):
                found[job] = None
    return tuple(found)


def _told(verdict: HangVerdict) -> tuple[str, tuple[int, ...]]:
    if verdict.kind in (HangClass.NO_WAIT, HangClass.UNKNOWN):
        return "", ()
    # No node is at fault of what a program does, nor of storage that does not answer.
    of_no_node = verdict.kind in (HangClass.DESYNC, HangClass.KNOWN_SOFTWARE, HangClass.STORAGE)
    ranks = () if of_no_node else tuple(culprit.rank for culprit in verdict.culprits)
    missing = [line for line in verdict.ras if MISSING in line]
    sentence = "; ".join([verdict.sentence.rstrip("."), *missing[:1]])
    return brief(sentence), ranks
