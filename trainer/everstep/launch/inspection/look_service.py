"""Look service of a launcher: reads its ranks when somebody asks, on a socket beside theirs.

The launcher's own children may read ranks where Yama lets nobody else (kernel.yama.ptrace_scope 1),
so the command line asks it rather than to read them itself.
"""

import contextlib
import os
import selectors
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from everstep.launch.inspection.question import Answer, Question, RankAsked, Seen
from everstep.launch.inspection.rank_pages import RankFacts
from everstep.launch.inspection.reading import AGAIN, PATIENT_S, Reading, py_spy, unread
from everstep_common.codec import json_text

SOCKET = "look.sock"
# Whoever asks while a look goes on gets its answers; more than so many are not kept waiting.
_WAITING_MAX = 8
# Of 64 ranks 200 KB; the launcher waits no longer for one who does not take them.
_SEND_S = 0.2


def rank_asked(rank: int, pid: int, seen: Seen | None, facts: RankFacts) -> RankAsked:
    """Return the question for a rank, with what it has told of itself. Pure."""
    return RankAsked(
        rank,
        pid,
        seen,
        step=facts.step,
        phase=facts.shown,
        watch_thread=facts.watch_thread,
        watch_process=facts.watch_process,
        waits_for_gil=facts.waits_for_gil,
        unheard_ms=facts.unheard_ns // 1_000_000,
        page=facts.page,
    )


Told = Callable[[tuple[Answer, ...]], None]


class LookService:
    """The looks at one launcher's ranks: one of a kind at a time, for whoever asks."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        folder: Path | None,
        ranks: Callable[[], Mapping[int, int]],
        facts: Callable[[int], RankFacts] = lambda _: RankFacts(),
        ending: Callable[[], str] = lambda: "",
    ) -> None:
        """``ranks`` returns the process of each rank that runs here, ``facts`` what it tells.

        ``ending`` returns that they are being stopped, in words; "": they are not.
        """
        self._selector = selector
        self._folder = folder
        self._ranks = ranks
        self._facts = facts
        self._ending = ending
        self._reading = Reading(selector, self._finished)
        self._waiting: list[socket.socket] = []
        # What the last look saw of each process.
        self._seen: dict[int, Seen] = {}
        self._told: list[Told] = []
        # Looks at ranks that step: only when they enqueued their newest collectives.
        self._recent = Reading(selector, self._recent_finished)
        self._recent_told: list[Told] = []
        self._looked_at: list[RankAsked] = []
        self._listener = self._listen()

    def pids(self) -> set[int]:
        """Return the processes that read."""
        return self._reading.pids() | self._recent.pids()

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called at the latest, if at all."""
        waits = (self._reading.due_in_s(), self._recent.due_in_s())
        return min((wait for wait in waits if wait is not None), default=None)

    def advance(self) -> None:
        """Go on with the looks that are under way."""
        self._reading.advance()
        self._recent.advance()

    def ask(self, told: Told, *, patient: bool = False) -> None:
        """Look at all ranks that run here now; ``told`` hears what a look that goes on finds.

        ``patient``: for a person, who waits longer where the machine is loaded.
        """
        self._told.append(told)
        self._look(patient=patient)

    def ask_recent(self, told: Told) -> None:
        """Ask them when they enqueued their newest collectives, and nothing else."""
        self._recent_told.append(told)
        if not self._recent.under_way:
            asked = [RankAsked(rank, pid) for rank, pid in sorted(self._ranks().items())]
            self._recent.begin(self._question(recent=True), asked)

    def page(self, rank: int) -> str:
        """Return where the page of a rank of this generation is; "": it has none."""
        return self._facts(rank).page

    def _look(self, *, patient: bool) -> None:
        if self._reading.under_way:
            if not patient:
                self._reading.hurry()
            return
        asked = [self._asked(rank, pid) for rank, pid in sorted(self._ranks().items())]
        self._looked_at = asked
        question = self._question()
        if why := self._ending():
            self._finished(tuple(unread(one, question, why) for one in asked))
        else:
            within_s, again = (PATIENT_S, AGAIN) if patient else (0.0, "")
            self._reading.begin(question, asked, within_s=within_s, again=again)

    def _question(self, *, recent: bool = False) -> Question:
        return Question(
            folder=str(self._folder or ""),
            node=os.uname().nodename,
            recent=recent,
            py_spy="" if recent else py_spy(),
        )

    def _overtaken(self) -> str:
        """Return why what was read is not told: ranks that their launcher ends hold nobody back."""
        running = self._ranks()
        others = (running.get(one.rank, one.pid) != one.pid for one in self._looked_at)
        return self._ending() or ("they were restarted meanwhile" if any(others) else "")

    def _asked(self, rank: int, pid: int) -> RankAsked:
        return rank_asked(rank, pid, self._seen.get(pid), self._facts(rank))

    def close(self) -> None:
        """Answer nobody any more."""
        self._reading.close()
        self._recent.close()
        for one in (*self._waiting, *((self._listener,) if self._listener else ())):
            one.close()
        self._waiting = []

    def _listen(self) -> socket.socket | None:
        if self._folder is None:
            return None
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(str(self._folder / SOCKET))
            listener.listen(_WAITING_MAX)
        except OSError:
            listener.close()
            return None
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        return listener

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):  # whoever asked is gone
            client, _ = self._listener.accept()
            if len(self._waiting) >= _WAITING_MAX:
                client.close()
                return
            self._waiting.append(client)
            self._look(patient=True)

    def _finished(self, answers: tuple[Answer, ...]) -> None:
        self._seen = {one.launched_pid: one.seen for one in answers if one.seen}
        if why := self._overtaken():
            answers = tuple(unread(one, self._question(), why) for one in self._looked_at)
        waiting, self._told = self._told, []
        for told in waiting:
            told(answers)
        content = b"".join(json_text(one.report).encode() + b"\n" for one in answers)
        for client in self._waiting:
            with contextlib.suppress(OSError):  # it does not wait any more
                client.settimeout(_SEND_S)
                client.sendall(content)
            client.close()
        self._waiting = []

    def _recent_finished(self, answers: tuple[Answer, ...]) -> None:
        waiting, self._recent_told = self._recent_told, []
        for told in waiting:
            told(answers)
