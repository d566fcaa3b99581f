"""End evidence: what ranks of a generation did when others of it ended because of them.

Who exits first of those that wait is not who is waited for, and who gets data that do not fit has
not called for it. So the ranks that have not exited are looked at before they are killed, and of
those that have, their dumps are read. Their job waits two seconds for that, and longer only where
readers get no processor; what is not read by then is read on meanwhile.
"""

import os
import selectors
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from everstep.launch.inspection.look_service import LookService
from everstep.launch.inspection.question import Answer, Question, RankAsked
from everstep.launch.inspection.reading import DEADLINE_S, PATIENT_S, Reading
from everstep.launch.inspection.sources.dump_files import (
    exit_prefix,
    fresh_dumps,
    remove_exit_dumps,
)
from everstep.launch.inspection.sources.ras_client import RasSettings, RasUse
from everstep.launch.processes.rank_failure import RankFailure
from everstep_common.hangs.reports.rank_report import (
    BLIND_MAX,
    EvidenceSource,
    ProcessEnding,
    ProcessState,
    RankHangReport,
)

# Where users let torch write its own dumps; the first of them that is set.
_DUMP_NAMES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_TEXT_MAX = 400
# A look whose readers run takes less than DEADLINE_S; nothing waits longer for one without a
# processor. What it leaves to be read then has a second.
_STARVED_S, _DUMPS_S = 5.0, 1.0

Told = Callable[[tuple[Answer, ...]], None]


@dataclass(slots=True)
class _Generation:
    """One generation here, and what was seen of its end."""

    number: int
    ranks: range
    world_size: int
    # By the wall clock, as files are dated.
    since_ns: int
    endings: dict[int, ProcessEnding] = field(default_factory=dict)
    # None: nobody has looked.
    answers: dict[int, Answer] | None = None
    # Its end is decided: what could disturb it may be asked.
    decided: bool = False


@dataclass(frozen=True, slots=True)
class EvidencePlaces:
    """Places where a job's ranks leave evidence: how the names of dumps begin, and NCCL RAS."""

    # The first is of the dumps that ranks write when they end; none without a folder for them.
    dumps: tuple[str, ...]
    ras: RasSettings

    @classmethod
    def of(cls, folder: Path | None, environ: Mapping[str, str], ras: RasUse) -> "EvidencePlaces":
        """Return them; what users have set for torch and NCCL counts."""
        if folder is None:
            return cls((), RasSettings.of(ras, environ))
        own = next((environ[name] for name in _DUMP_NAMES if environ.get(name)), f"{folder}/dump-")
        return cls((exit_prefix(folder), own), RasSettings.of(ras, environ))


class EndEvidence:
    """Evidence of one launcher: taken once a generation, and kept until the next one steps."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        looks: LookService,
        places: EvidencePlaces,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._looks = looks
        self._monotonic = monotonic
        self._reading = Reading(selector, self._dumps_read, monotonic=monotonic)
        self._prefixes, self._ras = places.dumps, places.ras
        self._now = _Generation(0, range(0), 0, 0)
        self._kept: _Generation | None = None
        self._ends_s: float | None = None
        # Until then, nothing is done to the ranks.
        self._began_s = self._acts_s = 0.0
        self._waiting: list[Callable[[], None]] = []
        self._told: list[Told] = []

    @property
    def under_way(self) -> bool:
        """Whether evidence is being taken."""
        return self._ends_s is not None

    def pids(self) -> set[int]:
        """Return the processes that read."""
        return self._reading.pids()

    def begin(self, number: int, ranks: range, world_size: int) -> None:
        """A generation starts; what was seen of the one before is kept until it steps."""
        for prefix in () if self.under_way else self._prefixes[:1]:
            remove_exit_dumps(prefix, ranks)
        self._now = _Generation(number, ranks, world_size, time.time_ns())

    def settled(self, number: int) -> None:
        """A generation steps: nobody asks any more how the one before ended."""
        if self._kept is not None and self._kept.number < number:
            self._kept = None

    def rank_ended(self, failure: RankFailure) -> None:
        """Note how a rank ended; one whose end others have caused has them looked at."""
        report = failure.report()
        text = (report.exception or report.last_line)[:_TEXT_MAX]
        self._now.endings[report.rank] = ProcessEnding(
            report.exit_code, report.signal, report.at_boot_ns, failure.kind, text
        )
        if failure.leads_to_others:
            self.begin_look()

    def begin_look(self, *, decided: bool = False) -> None:
        """Look at the ranks that still run, once a generation; ``decided``: its end is ordered."""
        self._now.decided = self._now.decided or decided
        if self._now.answers is None and self._now.number:
            self._now.answers = {}
            self._kept = self._now
            self._began_s = self._monotonic()
            self._acts_s = self._began_s + _STARVED_S
            self._ends_s = self._began_s + PATIENT_S
            self._looks.ask(self._looked, patient=True)

    def then(self, act: Callable[[], None]) -> None:
        """Act when the evidence is taken: at once, or when nobody waits for it any longer."""
        if self.under_way and self._monotonic() < self._acts_s:
            self._waiting.append(act)
        else:
            act()

    def answer(self, number: int, told: Told) -> None:
        """Tell what was seen of a generation's end; nothing if nobody has looked, or it is over."""
        if self._kept is None or self._kept.number != number:
            told(())
        elif self.under_way:
            self._told.append(told)
        else:
            told(self._answers())

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called at the latest, if at all."""
        if self._ends_s is None:
            return None
        return max(0.0, (self._acts_s if self._waiting else self._ends_s) - self._monotonic())

    def advance(self) -> None:
        """Go on with what is under way; nobody waits longer than until its deadline."""
        self._reading.advance()
        if self._ends_s is not None and self._monotonic() >= self._ends_s:
            self._finish()
        elif self._monotonic() >= self._acts_s:
            self._act()

    def close(self) -> None:
        """End what reads; nobody waits for it."""
        self._reading.close()

    def _looked(self, answers: tuple[Answer, ...]) -> None:
        if self._kept is None or self._kept.answers is None or not self.under_way:
            return
        now_s = self._monotonic()
        self._acts_s = max(self._began_s + DEADLINE_S, now_s + _DUMPS_S)
        seen = {one.report.rank: one for one in answers if one.report.rank in self._kept.ranks}
        self._kept.answers.update(seen)
        left = {rank: self._has_ended(rank) for rank in self._kept.ranks}
        asks_ras = self._asks_ras(self._kept)
        asked = tuple(
            RankAsked(rank, 1, dump=ended, ras=asks_ras and rank == 0, page=self._looks.page(rank))
            for rank, ended in left.items()
            if ended or (asks_ras and rank == 0)
        )
        question = Question(
            node=os.uname().nodename,
            world_size=self._kept.world_size,
            dumps=self._prefixes,
            since_ns=self._kept.since_ns,
            ras=self._ras.address,
            pids=tuple(one.report.pid for one in seen.values()),
        )
        self._reading.begin(question, asked, within_s=(self._ends_s or now_s) - now_s)

    def _asks_ras(self, ended: _Generation) -> bool:
        """Return whether NCCL RAS is asked: by the node of rank 0 alone, and once."""
        reports = [one.report for one in (ended.answers or {}).values()]
        return ended.decided and 0 in ended.ranks and self._ras.may_ask(reports)

    def _has_ended(self, rank: int) -> bool:
        """Return whether a rank has ended, or has written how far it was and is about to."""
        assert self._kept is not None
        dumps = fresh_dumps(self._prefixes[:1], rank, self._kept.since_ns)
        return rank in self._kept.endings or bool(dumps)

    def _dumps_read(self, answers: tuple[Answer, ...]) -> None:
        if self._kept is None or self._kept.answers is None:
            return
        for answer in answers:
            rank = answer.report.rank
            known, gone = self._kept.answers.get(rank), rank in self._kept.endings
            # A rank that gave up has told, while it ended, that it waits for nothing any more.
            if known is None or answer.report.groups or (gone and not _was_alive(known.report)):
                self._kept.answers[rank] = answer
            else:
                self._kept.answers[rank] = replace(known, report=_with_ras(known, answer))
        self._finish()

    def _finish(self) -> None:
        self._ends_s = None
        told, self._told = self._told, []
        answers = self._answers()
        for one in told:
            one(answers)
        self._act()

    def _act(self) -> None:
        waiting, self._waiting = self._waiting, []
        for act in waiting:
            act()

    def _answers(self) -> tuple[Answer, ...]:
        kept = self._kept
        if kept is None or kept.answers is None:
            return ()
        return tuple(
            replace(one, report=with_ending(one.report, kept.endings.get(rank)))
            for rank, one in sorted(kept.answers.items())
        )


def with_ending(report: RankHangReport, ending: ProcessEnding | None) -> RankHangReport:
    """Return a report of a rank that has ended with how it did; of a living one it stays. Pure."""
    if ending is None or _was_alive(report) or _came_late(report):
        return report
    process = replace(report.process, state=ProcessState.DEAD, ending=ending)
    return replace(report, process=process)


def _with_ras(known: Answer, answer: Answer) -> RankHangReport:
    unknown = [one for one in answer.report.blind if one.source is EvidenceSource.NCCL_RAS]
    blind = (*known.report.blind, *unknown)[:BLIND_MAX]
    return replace(known.report, ras=answer.report.ras, blind=blind)


def _was_alive(report: RankHangReport) -> bool:
    unread = any(one.source is EvidenceSource.PROCESS_STATE for one in report.blind)
    return report.process.state is not ProcessState.DEAD and not unread and report.pid > 1


def _came_late(report: RankHangReport) -> bool:
    """Return whether a dump says that its rank came when the others had given up."""
    return bool(report.groups) and report.process.state is not ProcessState.DEAD
