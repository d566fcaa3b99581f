"""Live jobs that hang: ranks of gloo forked on demand, watched and read as a launcher does.

Ranks get what `everstep run` gives them: its variables, worker server, folder and pages of memory.
The launcher's own watch says when they stand still, and the agent's judge when it tells that.
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from hangs.cases import Case, layout_seed
from hangs.programs import PROGRESS, Fault, Start, phase_name
from harness.processes import module_command, with_paths

from everstep.launch.inspection.end_evidence import with_ending
from everstep.launch.inspection.look_service import rank_asked
from everstep.launch.inspection.question import Answer, Question, RankAsked, Seen
from everstep.launch.inspection.rank_files import RankFiles
from everstep.launch.inspection.rank_watch import RankWatch
from everstep.launch.inspection.reading import Reading, py_spy
from everstep.launch.inspection.sources.dump_files import (
    exit_prefix,
    fresh_dumps,
    remove_exit_dumps,
)
from everstep.launch.selector_loop import call_ready
from everstep.rank.interpreter.everstep_rank_page import PLACE
from everstep_agent.jobs.standing.stand_still import StandStill
from everstep_common.clock import boot_ns
from everstep_common.hangs.reports.rank_report import ProcessEnding, RankHangReport
from everstep_common.launcher_messages import RanksWatched
from everstep_common.reports import RanksStandStill

_POLL_S = 0.02
_STARTS_S = 90.0
_GOES_ON_S = 20.0
# Until enough is learned: some 10 s of a job that starts, 2 s of a new phase; busy machines more.
_LEARNS_S = 60.0
# An injection comes to pass within a step, and waits for a slow one.
_COMES_S = 8.0
# A fault of a program may need some steps until it shows; some never do.
_SHOWS_S = 8.0
_MOVES_S = 0.8
# Ranks that have not moved for so long stand still: several steps of these jobs.
_STILL_S = 0.8
_UNDETECTED_S = 30.0
_GENERATION = 1
_SIGNALS = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}


class JobWatch:
    """When the ranks of a job stand still, by the launcher's watch and the agent's judge."""

    def __init__(self, ranks: int, running: Callable[[], Mapping[int, int]]) -> None:
        """``running`` returns the processes of the ranks that have not ended."""
        self._ranks = ranks
        self._watched: RanksWatched | None = None
        self._told = False
        self._watch = RankWatch(self._hear, running)
        self._watch.begin(_GENERATION, range(ranks), ranks)
        self._judge = StandStill()
        self.begin()

    def environment(self, rank: int) -> dict[str, str]:
        """Return by what a rank finds its page."""
        return self._watch.environment(rank)

    def begin(self) -> None:
        """Forget the stands that ended well: each injection of a job is its first."""
        self._judge.begin(_GENERATION, range(self._ranks))
        self._told = False

    def stands_still(self) -> bool:
        """Read what is due; return whether the agent would have told that they stand still."""
        self._watch.tell_again()  # each second, so that the judge below is asked as often
        self._watch.advance({})
        return self._told

    def knows(self, phase: str) -> bool:
        """Return whether enough was learned of a phase to judge in it."""
        self.stands_still()
        told = self._watched
        return told is not None and told.phases == (phase,) and told.usual_ns > 0

    def moved_since(self, at_ns: int) -> bool:
        """Return whether each rank was seen to move since then, on the boot clock."""
        facts = [self._watch.facts(rank).frontier for rank in range(self._ranks)]
        return all(one is not None and one.moved_at_ns > at_ns for one in facts)

    def left(self, rank: int, pid: int) -> RankAsked:
        """Return the question for a rank that has ended."""
        return RankAsked(rank, pid, dump=True, page=self._watch.facts(rank).page)

    def asked(self, rank: int, pid: int, seen: Seen | None) -> RankAsked:
        """Return the question for a rank, with what it has told of itself."""
        return rank_asked(rank, pid, seen, self._watch.facts(rank))

    def end(self) -> None:
        """Free the pages."""
        self._watch.end()

    def _hear(self, told: object) -> None:
        assert isinstance(told, RanksWatched)
        self._watched = told
        self._judge.add_watched(told, boot_ns())
        self._told |= isinstance(self._judge.judge(boot_ns()), RanksStandStill)


class Forge:
    """The process that forks ranks, and the folder by which they are read."""

    def __init__(self) -> None:
        self.files = RankFiles.make()
        environ = {**with_paths(), "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
        environ |= self.files.environment(environ)
        self._process = subprocess.Popen(
            module_command("hangs.live_rank"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._received = b""
        self._started: dict[int, int] = {}
        self.ended: dict[int, int] = {}

    def __enter__(self) -> "Forge":
        """Return it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        """End all ranks."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.files.remove()

    def start(self, start: Start) -> int:
        """Return the process of a new rank."""
        assert self._process.stdin is not None
        self._started.pop(start.rank, None)
        self._process.stdin.write(json.dumps(asdict(start)).encode() + b"\n")
        self._process.stdin.flush()
        ends_s = time.monotonic() + _STARTS_S
        while start.rank not in self._started:
            self.poll()
            assert time.monotonic() < ends_s, "a rank did not start"
            time.sleep(_POLL_S / 4)
        return self._started[start.rank]

    def poll(self) -> None:
        """Take what has been told meanwhile."""
        assert self._process.stdout is not None
        assert self._process.poll() is None
        self._received += self._process.stdout.read() or b""
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            what, first, second = line.split()
            if what == b"started":
                self._started[int(first)] = int(second)
            else:
                self.ended[int(first)] = int(second)


class LiveJob:
    """One job of the forge."""

    def __init__(self, forge: Forge, case: Case, *, exits: bool) -> None:
        self._forge = forge
        self.ranks = case.ranks
        self.folder = Path(tempfile.mkdtemp(prefix="es-live-"))
        self._progress_path = self.folder / "progress"
        # The last record is the phase that all are to enter, beside the steps of each.
        self._progress_path.write_bytes(bytes(PROGRESS.size * (case.ranks + 1)))
        self._part = 0
        self._started_ns = time.time_ns()
        remove_exit_dumps(exit_prefix(forge.files.folder), range(case.ranks))
        self._watch = JobWatch(case.ranks, self._running)
        seed = layout_seed(case.layout, case.ranks)
        self.pids = {
            rank: forge.start(
                Start(
                    folder=str(self.folder),
                    layout=case.layout,
                    ranks=case.ranks,
                    seed=seed,
                    rank=rank,
                    exits=exits,
                    page=self._watch.environment(rank)[PLACE],
                )
            )
            for rank in range(case.ranks)
        }
        self._number = 0
        self._seen: dict[int, Seen] = {}

    def progress(self) -> list[tuple[int, int]]:
        """Return step and call of each rank."""
        return list(PROGRESS.iter_unpack(self._progress_path.read_bytes()))[:-1]

    def train_to(self, step: int, within_s: float) -> bool:
        """Wait until all ranks are at a step; return whether they came there."""
        ends_s = time.monotonic() + within_s
        while min(self.progress())[0] < step:
            if time.monotonic() > ends_s:
                return False
            time.sleep(_POLL_S)
        return True

    def begin_part(self) -> None:
        """Have all ranks go on in a phase of its own, in which nothing has stood still yet.

        A gap belongs to each phase in which a rank was meanwhile, so it has to be over.
        """
        now_ns = boot_ns()
        self._comes(lambda: self._watch.moved_since(now_ns), _LEARNS_S)
        self._part += 1
        with self._progress_path.open("r+b") as file:
            file.seek(-PROGRESS.size, os.SEEK_END)
            file.write(PROGRESS.pack(self._part, 0))
        self._watch.begin()

    def learns(self) -> bool:
        """Wait until it is known what is usual in this phase; return whether that came."""
        name = phase_name(self._part)
        return self._comes(lambda: self._watch.knows(name), _LEARNS_S)

    def detected(self, began_ns: int) -> bool:
        """Wait until the job is known to hang: a rank has ended, or they stand still.

        False: it goes on. What is not known after a while is looked at all the same.
        """
        last, moved_s = self.progress(), time.monotonic()
        while (passed_s := (time.monotonic_ns() - began_ns) / 1e9) < _UNDETECTED_S:
            self._forge.poll()
            if len(self._running()) < self.ranks or self._watch.stands_still():
                return True
            if (now := self.progress()) != last:
                last, moved_s = now, time.monotonic()
            if passed_s > _SHOWS_S and time.monotonic() - moved_s < _MOVES_S:
                return False
            time.sleep(_POLL_S)
        return True

    def _running(self) -> dict[int, int]:
        return {rank: pid for rank, pid in self.pids.items() if pid not in self._forge.ended}

    def _comes(self, so: Callable[[], bool], within_s: float) -> bool:
        ends_s = time.monotonic() + within_s
        while not so():
            if time.monotonic() > ends_s:
                return False
            time.sleep(_POLL_S)
        return True

    def inject(self, case: Case) -> int:
        """Make it happen; return when it did, on the monotonic clock, or 0 if it did not."""
        if case.kind in _SIGNALS:
            time.sleep(case.delay_s)
            began_ns = time.monotonic_ns()
            os.kill(self.pids[case.victim], _SIGNALS[case.kind])
            return began_ns
        number, self._number = self._number, self._number + 1
        os.mkfifo(self.folder / f"release-{number}.pipe")
        return self._inject_by_file(Fault(number, case.kind, case.victim, case.place))

    def _inject_by_file(self, fault: Fault) -> int:
        draft = self.folder / "fault.new"
        draft.write_text(json.dumps(asdict(fault)))
        draft.rename(self.folder / f"fault-{fault.number}.json")
        began = self.folder / f"began-{fault.number}"
        ends_s = time.monotonic() + _COMES_S
        while not began.exists():
            if time.monotonic() > ends_s:
                return 0
            time.sleep(_POLL_S / 4)
        return int(began.read_text())

    def stands_still(self) -> bool:
        """Return whether no rank moved for a moment; a watch would tell that later."""
        ends_s = time.monotonic() + _SHOWS_S
        last, since_s = self.progress(), time.monotonic()
        while time.monotonic() - since_s < _STILL_S:
            if time.monotonic() > ends_s:
                return False
            time.sleep(_POLL_S)
            if (now := self.progress()) != last:
                last, since_s = now, time.monotonic()
        return True

    def look(self) -> list[RankHangReport]:
        """Return a report of each rank, read as the launcher reads it."""
        selector = selectors.DefaultSelector()
        found: list[Answer] = []
        reading = Reading(selector, found.extend)
        self._forge.poll()
        folder = self._forge.files.folder
        left = (exit_prefix(folder),)
        question = Question(
            ranks=(),
            folder=str(folder),
            within_s=0.0,
            node=os.uname().nodename,
            world_size=self.ranks,
            dumps=left,
            since_ns=self._started_ns,
            py_spy=py_spy(),
        )
        asked = [
            self._watch.asked(rank, pid, self._seen.get(pid))
            if rank in self._running() and not fresh_dumps(left, rank, self._started_ns)
            else self._watch.left(rank, pid)
            for rank, pid in self.pids.items()
        ]
        reading.begin(question, asked)
        while reading.under_way:
            call_ready(selector, reading.due_in_s())
            reading.advance()
        selector.close()
        self._seen = {one.launched_pid: one.seen for one in found if one.seen}
        self._forge.poll()
        return [self._with_ending(one.report) for one in found]

    def _with_ending(self, report: RankHangReport) -> RankHangReport:
        """Return a report with what a launcher knows of a process that has ended."""
        status = self._forge.ended.get(self.pids[report.rank])
        if status is None:
            return report
        said = (self.folder / f"stderr-{report.rank}").read_text(errors="replace").split("\n")
        text = next((line for line in reversed(said) if line.strip()), "")
        ending = ProcessEnding(
            exit_code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else 0,
            signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
            text=text[:400],
        )
        return with_ending(report, ending)

    def release(self, case: Case) -> bool:
        """Let the rank go on; return whether all do."""
        step = min(self.progress())[0] + 2
        if case.kind == "stop":
            os.kill(self.pids[case.victim], signal.SIGCONT)
            return self.train_to(step, _GOES_ON_S)
        number = self._number - 1
        (self.folder / f"release-{number}").touch()
        pipe = os.open(self.folder / f"release-{number}.pipe", os.O_RDWR | os.O_NONBLOCK)
        if case.kind in ("gil", "loader"):
            os.write(pipe, b"x")
        ends_s = time.monotonic() + _GOES_ON_S
        while not (goes_on := self.train_to(step, _POLL_S)) and time.monotonic() < ends_s:
            if case.kind == "save_blocked":
                with contextlib.suppress(BlockingIOError):
                    os.read(pipe, 1 << 20)
        os.close(pipe)
        return goes_on

    def end(self) -> None:
        """End all its ranks, and wait for that."""
        for pid in self.pids.values():
            if pid not in self._forge.ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        while not set(self.pids.values()) <= self._forge.ended.keys():
            self._forge.poll()
            time.sleep(_POLL_S)
        self._watch.end()
        shutil.rmtree(self.folder, ignore_errors=True)
