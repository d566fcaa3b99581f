"""Inspection of a job's ranks here: its launcher looks, as the job's user, and the agent waits."""

import asyncio
from collections.abc import Callable

from everstep_agent.jobs.job.peers import LauncherLink
from everstep_common.reports import RanksInspected
from everstep_common.trainer_messages import Inspect, Inspected, InspectEnd, InspectRecent

# The reader of the launcher has two seconds; its start on a busy node takes another.
_LAUNCHER_S = 4.0
# A look at collectives takes a second; so many questions wait for its end.
_NEXT_MAX = 8
# In one answer, whatever the ranks have written into it: well below what a stream takes at once.
_ANSWER_MAX = 1024 * 1024

Answer = Callable[[RanksInspected], None]


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
        self._generation, self._recent = 0, False
        # Questions that wait for the end of a look at collectives.
        self._next: list[Callable[[], None]] = []
        self._reports: list[str] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(
        self, inspection_id: str, answer: Answer, generation: int = 0, *, recent: bool = False
    ) -> None:
        """Have the launcher look, if it does not already; the answer comes in any case.

        With a ``generation`` it tells what it saw when that one ended; with ``recent`` only when
        ranks enqueued their newest collectives.
        """
        other = (generation, recent) != (self._generation, self._recent)
        if self._waiting and other and self._recent and len(self._next) < _NEXT_MAX:
            # Whoever looks at ranks that hang must not miss those of a node.
            self._next.append(lambda: self.begin(inspection_id, answer, generation, recent=recent))
            return
        if self._waiting and other:
            answer(RanksInspected(inspection_id, missing="it is asked something else just now"))
            return
        under_way = bool(self._waiting)
        self._waiting[inspection_id] = answer
        if under_way:
            return
        self._look += 1
        self._generation, self._recent = generation, recent
        if generation and not self._link.looks:
            self._end("its launcher is of an older version, or away: it keeps nothing of an end")
            return
        if recent and self._link.connected and not self._link.tells_recent:
            self._end("its launcher is of an older version: it tells nothing of collectives")
            return
        if not self._link.send(self._question()):
            self._end("its launcher is away, and it alone may look at its ranks")
            return
        loop = asyncio.get_running_loop()
        said = f"its launcher did not answer within {_LAUNCHER_S:g} s; it may stand still itself"
        self._timer = loop.call_later(_LAUNCHER_S, self._end, said)

    def _question(self) -> Inspect:
        if self._generation:
            return InspectEnd(self._look, self._generation)
        return InspectRecent(self._look) if self._recent else Inspect(self._look)

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
