"""Runs of the hang recovery benchmark: a job that hangs once, and what became of it.

A job is on one node (`everstep run --standalone`, torchrun), or on two nodes on loopback with a
third as the spare, each with an agent and a launcher of its own.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.processes import START_PATIENCE_S
from recovery.fleet import Fleet, Shape, plain_environment, record_descendants
from recovery.runs import owned

from everstep_cli.client.admin import Admin, AdminError
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_admin import connect
from everstep_proto.generated import admin_pb2

BOUND_S = 120.0
# Faults of the program: such a job is to end.
PROGRAM = ("desync", "skip", "shape")
RANKS = 4
_SCRIPT = Path(__file__).with_name("recovery_rank.py")
_EVERSTEP = (sys.executable, "-P", "-m", "everstep.entry", "run", "--standalone")
_TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--max-restarts=1"),
)
_POLL_S = 0.2
_STARTS_S = START_PATIENCE_S


@dataclass(frozen=True, slots=True)
class Hang:
    """How a job of four ranks trains, and what happens to it after a while."""

    how: str
    warm_s: float = 20.0
    step_s: float = 0.1
    calls: int = 2
    # Of the process group; 0: as torch ships it.
    timeout_s: float = 0.0
    # Before it happens rank 0 evaluates twice for as long, and says nothing of it.
    evaluates_s: float = 0.0
    # Ranks of each of two nodes, where it is not on one.
    processes: int = 2

    def words(self) -> list[str]:
        """Return it as arguments of the training script."""
        numbers = (self.warm_s, self.step_s, self.calls, self.timeout_s, self.evaluates_s)
        return [self.how, *map(str, numbers)]


@dataclass(slots=True)
class Recovery:
    """What became of one job: seconds since its fault; None where that never came."""

    marks: dict[str, float] = field(default_factory=dict)
    # The first word of each kind since then.
    said: dict[str, str] = field(default_factory=dict)
    next_step_s: float | None = None
    ended_s: float | None = None
    restarts: int = 0
    # How often people were told before the fault that the job stands still.
    told_before: int = 0


class Marks:
    """What a job leaves in its folder, and what the controller tells of it."""

    def __init__(self, folder: Path, hang: Hang) -> None:
        self.folder = folder
        self._hang = hang
        self._began_s = time.monotonic()
        self._events: list[admin_pb2.Event] = []
        self._ended_ns = 0

    @property
    def fault_ns(self) -> int:
        """Return when the fault came; 0: it has not."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / "fault").read_text())
        return 0

    def read_events(self, admin: contextlib.AbstractContextManager[Admin]) -> None:
        """Take what the controller tells."""
        with contextlib.suppress(AdminError), admin as one:
            asked = admin_pb2.WatchEventsRequest(limit=1000)
            self._events = list(one.stream(lambda stub: stub.WatchEvents, asked))

    def is_over(self, ended: bool, until: str) -> bool:
        """Return whether what is waited for has come, or can come no more."""
        if ended:
            self._ended_ns = self._ended_ns or time.time_ns()
            return True
        if not self.fault_ns:
            longest_s = self._hang.warm_s + 2 * self._hang.evaluates_s + _STARTS_S
            return time.monotonic() - self._began_s > longest_s
        if time.time_ns() - self.fault_ns > BOUND_S * 1e9 or (until and until in self._since()):
            return True
        # What is ended for a fault of the program makes no further step that counts.
        return not until and self._hang.how not in PROGRAM and self._next_step_ns() > 0

    def recovery(self) -> Recovery:
        """Return what became of it."""
        fault_ns = self.fault_ns
        if not fault_ns:
            print(f"{self._hang.how}: no fault came in {self.folder}", file=sys.stderr)
            return Recovery()
        step_ns, since = self._next_step_ns(), self._since()
        found = Recovery(
            marks={reason: (one.at_ns - fault_ns) / 1e9 for reason, one in since.items()},
            said={reason: one.message for reason, one in since.items()},
            next_step_s=(step_ns - fault_ns) / 1e9 if step_ns else None,
            ended_s=(self._ended_ns - fault_ns) / 1e9 if self._ended_ns else None,
            restarts=max(0, sum(one.reason == "JobStarting" for one in self._events) - 1),
            told_before=sum(
                one.reason == "JobStalled" and one.at_ns <= fault_ns for one in self._events
            ),
        )
        marks = {name: round(seconds, 1) for name, seconds in found.marks.items()}
        print(f"{self._hang.how}: {found.next_step_s}, {found.ended_s}, {marks}", file=sys.stderr)
        return found

    def _since(self) -> dict[str, admin_pb2.Event]:
        """Return the first event of each kind since the fault."""
        found: dict[str, admin_pb2.Event] = {}
        for event in self._events:
            if event.at_ns > (self.fault_ns or sys.maxsize):
                found.setdefault(event.reason, event)
        return found

    def _next_step_ns(self) -> int:
        """Return when a step was complete that had not been begun at the fault; 0: none was."""
        with contextlib.suppress(OSError):
            lines = (self.folder / "steps").read_text().splitlines()
            steps = [tuple(map(int, line.split())) for line in lines]
            return next((at_ns for _, at_ns in steps if at_ns > self.fault_ns), 0)
        return 0


def standalone(hang: Hang, until: str = "") -> Recovery:
    """Run a job with a hang until it trains again, ends, or ``until`` is told of it."""
    words = [f"--job=hang-{os.getpid()}", f"--nproc-per-node={RANKS}", "--", sys.executable]
    with _launched([*_EVERSTEP, *words], hang) as (process, marks):
        while not marks.is_over(process.poll() is not None, until):
            said = (marks.folder / "output").read_text(errors="replace").splitlines()
            for line in (line for line in said if "EVERSTEP_CONTROLLER=" in line):
                address = line.partition("EVERSTEP_CONTROLLER=")[2].partition(";")[0]
                marks.read_events(connect(Connection(address=address, timeout_s=2.0)))
                break
            time.sleep(_POLL_S)
        return marks.recovery()


def torchrun(hang: Hang) -> Recovery:
    """Run a job under torchrun until it trains again, or ends."""
    with _launched([*_TORCHRUN, f"--nproc-per-node={RANKS}"], hang) as (process, marks):
        while not marks.is_over(process.poll() is not None, ""):
            time.sleep(_POLL_S)
        return marks.recovery()


@contextlib.contextmanager
def _launched(
    launcher: Sequence[str], hang: Hang
) -> Iterator[tuple["subprocess.Popen[bytes]", Marks]]:
    """Yield a job in a folder of its own; it is ended with everything that it started."""
    folder = Path(tempfile.mkdtemp(prefix="es-hang-"))
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    line = [*launcher, str(_SCRIPT), str(folder), *hang.words()]
    with (folder / "output").open("wb") as said:
        process = subprocess.Popen(line, stdout=said, stderr=subprocess.STDOUT, env=environ)
    try:
        yield process, Marks(folder, hang)
    finally:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if process.poll() is None:
                process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


class HangFleet(Fleet):
    """Two nodes and a spare, whose ranks are those of this benchmark."""

    hang: Hang

    def admin(self) -> contextlib.AbstractContextManager[Admin]:
        """Return a connection to the controller."""
        return self._admin()

    def ended(self) -> bool:
        """Return whether no launcher is left."""
        return all(child.exit_code is not None for child in self.launchers.values())

    def _launch(self, name: str) -> None:
        program: list[str | Path] = [sys.executable, _SCRIPT, self.steps_folder]
        program += self.hang.words()
        line = self.shape.launcher(self.folder / "token", self._socket(name), program)
        environ = plain_environment() | {"OMP_NUM_THREADS": "1"}
        words = [str(word) for word in line]
        self.launchers[name] = self.owned.start(f"{name}-launcher", words, environ)


def with_spare(hang: Hang) -> Recovery:
    """Run a job of two nodes with a spare until it trains again; "node": one of them dies."""
    with owned() as (home, folder):
        fleet = HangFleet(folder, home, Shape(nodes=2, spares=1, processes=hang.processes))
        fleet.hang = hang
        fleet.start()
        marks = Marks(fleet.steps_folder, hang)
        while not marks.is_over(fleet.ended(), ""):
            record_descendants(home)
            if hang.how == "node" and not marks.fault_ns:
                _kill_node(fleet, marks)
            marks.read_events(fleet.admin())
            time.sleep(_POLL_S)
        return marks.recovery()


def _kill_node(fleet: HangFleet, marks: Marks) -> None:
    """Kill all of the last rank's node at once, when the job has trained for long enough."""
    told = marks.folder / "warm"
    if told.exists():
        name = fleet.node_of(int(told.read_text()))
        at_ns = time.time_ns()
        fleet.kill_node(name)
        (marks.folder / "fault").write_text(str(at_ns))


def repeated(run: Callable[[Hang], Recovery], hang: Hang, repeats: int) -> list[Recovery]:
    """Return what became of so many runs; how far it is goes to standard error."""
    found = []
    for number in range(repeats):
        print(f"{hang.how}: run {number + 1} of {repeats}", file=sys.stderr, flush=True)
        found.append(run(hang))
    return found


def in_time(seconds: Iterable[float | None], bound_s: float = BOUND_S) -> list[float]:
    """Return seconds; what never came has taken the bound."""
    return [bound_s if one is None else one for one in seconds]
