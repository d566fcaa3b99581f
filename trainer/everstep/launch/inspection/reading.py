"""Reading of ranks that may hang: the reader programs of one look, followed by a selector loop.

A reader is a child of this process and has its user's rights and no others. One that hangs itself
is left to the kernel: what it has not told is missing in the answers, with that as the reason.
"""

import contextlib
import json
import os
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from everstep.launch.inspection import reader
from everstep.launch.inspection.question import LINE_MAX, RANKS_MAX, Answer, Question, RankAsked
from everstep_common import codec
from everstep_common.codec import from_json, json_text
from everstep_common.hangs.reports.rank_report import (
    Blind,
    EvidenceSource,
    ProcessFacts,
    RankHangReport,
)

# All of a look takes no longer; where a person waits for it, a loaded machine has more.
DEADLINE_S = 2.0
PATIENT_S = 10.0
# What that person is told to do when it was not enough.
AGAIN = "; try again"
# Of it, an interpreter that starts, and a line on its way, may take so much.
_RESERVE_S = 0.2
_REAP_S = 0.2
_PATHS = (str(Path(__file__).parents[3]), str(Path(codec.__file__).parents[1]))


@dataclass(frozen=True, slots=True)
class User:
    """Whose ranks are read, where a reader has to become that user first."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(slots=True)
class _Reader:
    process: subprocess.Popen[bytes]
    ranks: frozenset[int]
    received: bytearray = field(default_factory=bytearray)


class Reading:
    """One look at some ranks of this node; ``finished`` gets an answer of each, once."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        finished: Callable[[tuple[Answer, ...]], None],
        deadline_s: float = DEADLINE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._selector = selector
        self._deadline_s = deadline_s
        self._finished = finished
        self._monotonic = monotonic
        self._question = Question()
        self._asked: dict[int, RankAsked] = {}
        self._answers: dict[int, Answer] = {}
        self._readers: list[_Reader] = []
        self._began_s = self._ends_s = 0.0
        self._again = ""

    @property
    def under_way(self) -> bool:
        """Whether some ranks have not answered."""
        return bool(self._readers)

    def pids(self) -> set[int]:
        """Return the reader processes."""
        return {one.process.pid for one in self._readers}

    def begin(
        self,
        question: Question,
        ranks: Sequence[RankAsked],
        user: User | None = None,
        *,
        within_s: float = 0.0,
        again: str = "",
    ) -> None:
        """Start to read all of them; what is asked for is the same for all.

        ``within_s`` is when it ends at the latest, 0: as usual. A reader that runs takes no longer
        by that; one that waits for a processor may. ``again`` is what a person is told to do then.
        """
        self._question = question
        self._asked = {one.rank: one for one in ranks}
        self._answers = {}
        self._began_s = self._monotonic()
        self._ends_s = self._began_s + max(within_s, self._deadline_s)
        self._again = again
        for start in range(0, len(ranks), RANKS_MAX):
            part = tuple(ranks[start : start + RANKS_MAX])
            asked = replace(question, ranks=part, within_s=self._deadline_s - _RESERVE_S)
            try:
                self._follow(_started(asked, user), part)
            except OSError as error:
                for one in part:
                    reason = f"no reader can be started: {error.strerror}"
                    self._answers[one.rank] = unread(one, question, reason)
        self._maybe_finished()

    def hurry(self) -> None:
        """End what is under way no later than what would begin now."""
        self._ends_s = min(self._ends_s, self._monotonic() + self._deadline_s)

    def due_in_s(self) -> float | None:
        """Return after how long `advance` has to be called at the latest, if at all."""
        return max(0.0, self._ends_s - self._monotonic()) if self._readers else None

    def advance(self) -> None:
        """End what has not answered by its deadline."""
        if self._readers and self._monotonic() >= self._ends_s:
            took_s = round(self._ends_s - self._began_s, 1)
            for one in tuple(self._readers):
                self._end(
                    one, f"its reader took too long: no answer within {took_s:g} s{self._again}"
                )

    def close(self) -> None:
        """End the readers; nobody waits for their answers."""
        for one in self._readers:
            one.process.kill()

    def _follow(self, process: subprocess.Popen[bytes], part: Iterable[RankAsked]) -> None:
        one = _Reader(process, frozenset(asked.rank for asked in part))
        self._readers.append(one)
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._selector.register(process.stdout, selectors.EVENT_READ, lambda: self._read(one))

    def _read(self, one: _Reader) -> None:
        assert one.process.stdout is not None
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(one.process.stdout.fileno(), LINE_MAX)
        one.received += data
        *lines, rest = one.received.split(b"\n")
        one.received = bytearray(rest)
        for line in lines:
            self._take(one, bytes(line))
        if not data or len(rest) > LINE_MAX or one.ranks <= self._answers.keys():
            self._end(one, "its reader ended without an answer")

    def _take(self, one: _Reader, line: bytes) -> None:
        with contextlib.suppress(ValueError):
            answer = from_json(Answer, _parsed(line))
            if answer.report.rank in one.ranks:
                self._answers[answer.report.rank] = answer

    def _end(self, one: _Reader, why: str) -> None:
        assert one.process.stdout is not None
        self._selector.unregister(one.process.stdout)
        one.process.stdout.close()
        one.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel holds it
            one.process.wait(_REAP_S)
        self._readers.remove(one)
        for rank in one.ranks - self._answers.keys():
            self._answers[rank] = unread(self._asked[rank], self._question, why)
        self._maybe_finished()

    def _maybe_finished(self) -> None:
        if not self._readers:
            self._finished(tuple(self._answers[rank] for rank in sorted(self._answers)))


def unread(asked: RankAsked, question: Question, why: str) -> Answer:
    """Return the answer of a rank that nobody has read."""
    report = RankHangReport(
        rank=asked.rank,
        world_size=question.world_size,
        node=question.node,
        pid=asked.pid,
        taken_ns=time.time_ns(),
        process=ProcessFacts(
            gil_held=True if asked.waits_for_gil else None,
            gil_held_ms=max(0, asked.unheard_ms) if asked.waits_for_gil else 0,
        ),
        blind=(Blind(EvidenceSource.PROCESS_STATE, why),),
    )
    return Answer(report, asked.pid, None)


def _started(question: Question, user: User | None) -> subprocess.Popen[bytes]:
    """Start a reader. Raises OSError."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", reader.__file__, *_PATHS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # Out of reach of what a terminal sends.
        start_new_session=True,
        user=user.uid if user else None,
        group=user.gid if user else None,
        extra_groups=user.groups if user else None,
    )
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:
        # 16 ranks take 4 KB, which a pipe has room for.
        process.stdin.write(json_text(question).encode() + b"\n")
    return process


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def py_spy() -> str:
    """Return the path of py-spy, an optional part; "" without it."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.is_file() else shutil.which("py-spy") or ""
