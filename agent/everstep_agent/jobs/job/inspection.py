"""Inspection of a job's ranks here: its launcher looks, as the job's user, and the agent waits."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from everstep_agent.jobs.job.peers import LauncherLink
from everstep_common.launcher_messages import (
    Inspect,
    Inspected,
    InspectEnd,
    InspectPatiently,
    InspectRecent,
)
from everstep_common.reports import RanksInspected

# The reader of the launcher has two seconds; its start on a busy node takes another.
_LAUNCHER_S = 4.0
# Where a person asks, it has ten.
_PATIENT_S = 12.0
# A look at collectives takes a second; so many questions wait for its end.
_NEXT_MAX = 8
# In one answer, whatever the ranks have written into it: well below what a stream takes at once.
_ANSWER_MAX = 1024 * 1024

Answer = Callable[[RanksInspected], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be looked at: ranks at this moment, or one of these."""

    # What was seen when this generation ended; 0: what they do now.
    generation: int = 0
    # Only when ranks enqueued their newest collectives.
    recent: bool = False
    # By a person, who waits longer.
    patient: bool = False

    def is_of(self, other: "Wanted") -> bool:
        """Return whether one look answers both."""
        return (self.generation, self.recent) == (other.generation, other.recent)


_NOW = Wanted()


class Inspections:
    """Questions of the controller what the ranks do, answered once each, by one look or none."""

    def __init__(self, link: LauncherLink, ranks: Callable[[], int]) -> None:
        """``ranks`` tells how many the node has now."""
        self._link = link
        self._ranks = ranks
        # Who waits for the look that is being taken, by the question's id.
        self._waiting: dict[str, Answer] = {}
        self._look = 0
        # What the look that is being taken is of.
        self._wanted = Wanted()
        # Questions that wait for the end of a look at collectives.
        self._next: list[Callable[[], None]] = []
        self._reports: list[str] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, inspection_id: str, answer: Answer, wanted: Wanted = _NOW) -> None:
        """Have the launcher look, if it does not already; the answer comes in any case."""
        other = not wanted.is_of(self._wanted)
        if self._waiting and other and self._wanted.recent and len(self._next) < _NEXT_MAX:
            # Whoever looks at ranks that hang must not miss those of a node.
            self._next.append(lambda: self.begin(inspection_id, answer, wanted))
            return
        if self._waiting and other:
            answer(RanksInspected(inspection_id, missing="it is asked something else just now"))
            return
        under_way = bool(self._waiting)
        self._waiting[inspection_id] = answer
        if not under_way:
            self._begin(wanted)
        elif self._wanted.patient and not wanted.patient and self._link.is_patient:
            # Automation does not wait as long as the person who has asked first.
            self._wanted = wanted
            self._link.send(self._question())
            self._end_in(_LAUNCHER_S)

    def _begin(self, wanted: Wanted) -> None:
        self._look += 1
        self._wanted, generation, recent = wanted, wanted.generation, wanted.recent
        if generation and not self._link.looks:
            self._end("its launcher is of an older version, or away: it keeps nothing of an end")
            return
        if recent and self._link.connected and not self._link.tells_recent:
            self._end("its launcher is of an older version: it tells nothing of collectives")
            return
        if not self._link.send(self._question()):
            self._end("its launcher is away, and it alone may look at its ranks")
            return
        self._end_in(_PATIENT_S if wanted.patient and self._link.is_patient else _LAUNCHER_S)

    def _end_in(self, within_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        said = f"its launcher did not answer within {within_s:g} s; it may stand still itself"
        self._timer = asyncio.get_running_loop().call_later(within_s, self._end, said)

    def _question(self) -> Inspect:
        if self._wanted.generation:
            return InspectEnd(self._look, self._wanted.generation)
        if self._wanted.recent:
            return InspectRecent(self._look)
        patient = self._wanted.patient and self._link.is_patient
        return InspectPatiently(self._look) if patient else Inspect(self._look)

    def take_part(self, told: Inspected) -> None:
        """Take what the launcher tells of the look that was asked for; all else is left out."""
        if not self._waiting or told.look != self._look:
            return
        for report in told.reports:
            fits = self._size + len(report) <= _ANSWER_MAX
            if fits and len(self._reports) < self._ranks():
                self._reports.append(report)
                self._size += len(report)
        if not told.more:
            self._end(told.missing)

    def _end(self, missing: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not missing and len(self._reports) < self._ranks():
            missing = f"it told of {len(self._reports)} of {self._ranks()} ranks"
        waiting, reports = self._waiting, tuple(self._reports)
        self._waiting, self._reports, self._size = {}, [], 0
        for inspection_id, answer in waiting.items():
            answer(RanksInspected(inspection_id, reports, missing))
        following, self._next = self._next, []
        for begin in following:
            begin()
