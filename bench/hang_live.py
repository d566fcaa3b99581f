"""Live hangs: real gloo jobs in which one rank holds the others back, looked at and judged.

Ranks get what `everstep run` gives them (its variables, worker server, folder), and are read as its
launcher reads them. A case is drawn from its kind and seed alone; those that a job survives follow
one another in one job.
"""

import contextlib
import json
import os
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType

from hang_programs import LAYOUTS, PIPELINES, PROGRESS, Fault, Start, changed, layout

from everstep.launch.hangs.question import Answer, Question, RankAsked, Seen
from everstep.launch.hangs.rank_files import RankFiles
from everstep.launch.hangs.reading import Reading, py_spy
from everstep.launch.selector_loop import call_ready
from everstep_common.hangs.judge import judge
from everstep_common.hangs.rank_report import ProcessEnding, RankHangReport
from everstep_common.hangs.verdict import HangClass, HangVerdict

# What each kind of injection is rightly called; of a program's fault the rank need not be named.
RIGHT: dict[str, HangClass] = {
    "sleep": HangClass.CPU_SIDE,
    "lock": HangClass.CPU_SIDE,
    "gil": HangClass.GIL_HELD,
    "gil_computing": HangClass.GIL_HELD,
    "stop": HangClass.FROZEN,
    "kill": HangClass.DEAD,
    "skip": HangClass.DESYNC,
    "reorder": HangClass.DESYNC,
    "shape": HangClass.DESYNC,
    "recv": HangClass.DESYNC,
    "loader": HangClass.CPU_SIDE,
    "evaluation": HangClass.CPU_SIDE,
    "save": HangClass.CPU_SIDE,
    "save_blocked": HangClass.CPU_SIDE,
}
KINDS = tuple(RIGHT)
PROGRAM_KINDS = frozenset(("skip", "reorder", "shape", "recv"))
# What comes out by itself: nothing is to be done but to tell it.
NEGATIVES = frozenset(("loader", "evaluation", "save", "save_blocked"))
_ENDING = PROGRAM_KINDS | {"gil_computing", "kill"}
# Where the stack of a negative says that its rank is.
PLACES = {
    "loader": "_load_batch",
    "evaluation": "_evaluate",
    "save": "_save_checkpoint",
    "save_blocked": "_save_to_a_pipe",
}
# Kinds that happen only to rank 0.
_ALONE = {"evaluation": 0, "save": 0, "save_blocked": 0}
_SIGNALS = {"stop": signal.SIGSTOP, "kill": signal.SIGKILL}

_POLL_S = 0.02
# Ranks that have not moved for so long stand still: several steps of these jobs.
_STILL_S = 0.8
# From one look to the next, as the watch of hangs does.
_BETWEEN_S = 1.0
# A fault of a program may need some steps until it shows; some never do.
_SHOWS_S = 8.0
_GOES_ON_S = 20.0
_STARTS_S = 90.0
_WARM_STEPS = 6
# What a report says where the machine is too busy for a look.
_LATE = "too long"


@dataclass(frozen=True, slots=True)
class Case:
    """One injection; kind and seed tell all of it."""

    kind: str
    seed: int
    layout: str
    ranks: int
    victim: int
    place: float
    # After which time a signal is sent.
    delay_s: float
    # Whether a rank ends when others do not answer any more.
    exits: bool

    @property
    def ends_job(self) -> bool:
        """Return whether its job does not go on afterwards."""
        return self.kind in _ENDING


def draw_case(kind: str, seed: int) -> Case:
    """Return the case of a kind and seed."""
    draw = random.Random(f"live {kind} {seed}")
    while True:
        name = draw.choice(PIPELINES if kind == "recv" else LAYOUTS)
        ranks = draw.choice((4, 8))
        victim = _ALONE.get(kind, draw.randrange(ranks))
        place = draw.random()
        delay_s, exits = draw.uniform(0.0, 0.3), draw.random() < 0.7
        step = layout(name, ranks, _layout_seed(name, ranks)).steps[victim]
        if kind not in PROGRAM_KINDS or changed(step, kind, place) is not None:
            return Case(kind, seed, name, ranks, victim, place, delay_s, exits)


def _layout_seed(name: str, ranks: int) -> int:
    # Each layout has one program of each size in a run, so that jobs can be shared.
    return LAYOUTS.index(name) * 10 + ranks


@dataclass(slots=True)
class Outcome:
    """What became of a case."""

    case: Case
    # Of the first look, and of the one after it; None where nothing hung.
    first: HangVerdict | None = None
    verdict: HangVerdict | None = None
    reports: list[RankHangReport] = field(default_factory=list)
    # From the fault until its ranks were seen to stand still, the first look, the verdict.
    still_s: float = 0.0
    first_s: float = 0.0
    verdict_s: float = 0.0
    judged_ms: float = 0.0
    # Whether the job went on, where it should.
    went_on: bool = True

    @property
    def named(self) -> set[int]:
        """Return the ranks that are blamed."""
        return {one.rank for one in self.verdict.culprits} if self.verdict else set()

    @property
    def class_right(self) -> bool:
        """Return whether the hang was called what it was."""
        return self.verdict is not None and self.verdict.kind is RIGHT[self.case.kind]

    @property
    def place_right(self) -> bool:
        """Return whether the reason says where a rank is that comes out by itself."""
        place = PLACES.get(self.case.kind)
        culprits = self.verdict.culprits if self.verdict else ()
        return place is None or any(place in one.reason for one in culprits)

    @property
    def right(self) -> bool:
        """Return whether nothing about it was wrong."""
        names = self.named
        if self.case.kind in PROGRAM_KINDS:
            return self.class_right and names <= {self.case.victim}
        return self.class_right and names == {self.case.victim} and self.place_right


def plan(cases: Sequence[Case]) -> list[list[Case]]:
    """Return which cases share a job: some that it survives, and one that ends it."""
    shared: dict[tuple[str, int], tuple[list[Case], list[Case]]] = {}
    for case in cases:
        survived, ending = shared.setdefault((case.layout, case.ranks), ([], []))
        (ending if case.ends_job else survived).append(case)
    jobs = []
    for survived, ending in shared.values():
        count = max(1, len(ending))
        for number in range(count):
            jobs.append([*survived[number::count], *ending[number : number + 1]])
    return jobs


class Forge:
    """The process that forks ranks, and the folder by which they are read."""

    def __init__(self) -> None:
        self.files = RankFiles.make()
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_FR_BUFFER_SIZE": "2000"}
        environ |= self.files.environment(environ)
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("hang_live_rank.py"))],
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
        self._progress_path.write_bytes(bytes(PROGRESS.size * case.ranks))
        seed = _layout_seed(case.layout, case.ranks)
        self.pids = {
            rank: forge.start(
                Start(
                    folder=str(self.folder),
                    layout=case.layout,
                    ranks=case.ranks,
                    seed=seed,
                    rank=rank,
                    exits=exits,
                )
            )
            for rank in range(case.ranks)
        }
        self._number = 0
        self._seen: dict[int, Seen] = {}

    def progress(self) -> list[tuple[int, int]]:
        """Return step and call of each rank."""
        return list(PROGRESS.iter_unpack(self._progress_path.read_bytes()))

    def train_to(self, step: int, within_s: float) -> bool:
        """Wait until all ranks are at a step; return whether they came there."""
        ends_s = time.monotonic() + within_s
        while min(self.progress())[0] < step:
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
        ends_s = time.monotonic() + _SHOWS_S
        while not began.exists():
            if time.monotonic() > ends_s:
                return 0
            time.sleep(_POLL_S / 4)
        return int(began.read_text())

    def stands_still(self) -> bool:
        """Wait until no rank moves; return whether that came."""
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
        question = Question(
            ranks=(),
            folder=str(self._forge.files.folder),
            within_s=0.0,
            node=os.uname().nodename,
            world_size=self.ranks,
            py_spy=py_spy(),
        )
        asked = [RankAsked(rank, pid, self._seen.get(pid)) for rank, pid in self.pids.items()]
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
        return replace(report, process=replace(report.process, ending=ending))

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
        shutil.rmtree(self.folder, ignore_errors=True)


def run_cases(cases: Sequence[Case], looks_max: int = 1) -> Iterator[Outcome]:
    """Yield what becomes of each.

    A second look that the machine is too busy for is taken again, up to ``looks_max`` times.
    """
    with Forge() as forge:
        for together in plan(cases):
            waiting = list(together)
            while waiting:
                yield from _run_job(forge, waiting, looks_max)


def _run_job(forge: Forge, waiting: list[Case], looks_max: int) -> Iterator[Outcome]:
    """Run cases in one job for as long as it survives them, and take them off the list."""
    job = LiveJob(forge, waiting[0], exits=waiting[-1].exits)
    try:
        assert job.train_to(_WARM_STEPS, _STARTS_S), f"the job of {waiting[0]} does not train"
        goes_on = True
        while waiting and goes_on:
            case = waiting.pop(0)
            outcome = _run_case(job, case, looks_max)
            if not case.ends_job:
                goes_on = outcome.went_on = job.release(case)
            yield outcome
    finally:
        job.end()


def _run_case(job: LiveJob, case: Case, looks_max: int) -> Outcome:
    outcome = Outcome(case)
    began_ns = job.inject(case)
    if not began_ns or not job.stands_still():
        return outcome
    outcome.still_s = _since_s(began_ns)
    looked_s = time.monotonic()
    outcome.first = judge(job.look(), case.ranks)
    outcome.first_s = _since_s(began_ns)
    time.sleep(max(0.0, looked_s + _BETWEEN_S - time.monotonic()))
    for _ in range(looks_max):
        outcome.reports = job.look()
        if not any(_LATE in blind.reason for one in outcome.reports for blind in one.blind):
            break
    started = time.process_time()
    outcome.verdict = judge(outcome.reports, case.ranks)
    outcome.judged_ms = 1000 * (time.process_time() - started)
    outcome.verdict_s = _since_s(began_ns)
    return outcome


def _since_s(began_ns: int) -> float:
    return (time.monotonic_ns() - began_ns) / 1e9
