"""Recent looks of a launcher: when its ranks enqueued their newest collectives, for its agent."""

import os
import selectors
from collections.abc import Callable, Mapping
from pathlib import Path

from everstep.launch.hangs.question import Answer, Question, RankAsked
from everstep.launch.hangs.reading import Reading

Told = Callable[[tuple[Answer, ...]], None]


class RecentLooks:
    """Looks at ranks that step, one at a time: who asks meanwhile shares it."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        folder: Path | None,
        ranks: Callable[[], Mapping[int, int]],
    ) -> None:
        """``ranks`` returns the process of each rank that runs here."""
        self._folder = folder
        self._ranks = ranks
        self._reading = Reading(selector, self._finished)
        self._told: list[Told] = []

    def pids(self) -> set[int]:
        """Return the processes that read."""
        return self._reading.pids()

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called at the latest, if at all."""
        return self._reading.due_in_s()

    def advance(self) -> None:
        """Go on with a look that is under way."""
        self._reading.advance()

    def ask(self, told: Told) -> None:
        """Look at all ranks that run here now; ``told`` hears what a look that goes on finds."""
        self._told.append(told)
        if not self._reading.under_way:
            asked = [RankAsked(rank, pid) for rank, pid in sorted(self._ranks().items())]
            question = Question(
                ranks=(),
                folder=str(self._folder or ""),
                within_s=0.0,
                node=os.uname().nodename,
                recent=True,
            )
            self._reading.begin(question, asked)

    def close(self) -> None:
        """Answer nobody any more."""
        self._reading.close()

    def _finished(self, answers: tuple[Answer, ...]) -> None:
        waiting, self._told = self._told, []
        for told in waiting:
            told(answers)
