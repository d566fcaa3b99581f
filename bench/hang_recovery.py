"""Hang recovery: from the moment a rank hangs until the job trains again, or ends; with a peer.

    python bench/hang_recovery.py [--json] [--repeats 3] [--only HOW]

Jobs of four ranks under `everstep run --standalone`, with steps of 0.1 s: a held GIL, SIGSTOP,
ranks that call different operations; what comes out by itself, where nothing may be restarted; and
one with 20 s steps of 40 collectives. Beside them torchrun, with a process-group timeout of 30 s
(as shipped it is 30 minutes with gloo, 10 with NCCL). Times are of the wall clock.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from table import Row, arguments, row, show

from everstep_cli.client.admin import AdminError
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_admin import connect

_SCRIPT = Path(__file__).with_name("hang_recovery_rank.py")
_RANKS = 4
# Stopped or with a held GIL, a rank cannot go on; the program's fault ends the job; the others end.
_STUCK, _PROGRAM, _PAUSES = ("gil", "stop"), ("desync",), ("evaluation", "loader", "save")
_HOWS = (*_STUCK, *_PROGRAM, *_PAUSES, "long")
_WARM_S, _STEP_S = 20.0, 0.1
# Three steps are needed until it is known how long one takes.
_LONG_WARM_S, _LONG_STEP_S, _LONG_CALLS = 110.0, 20.0, 40
_PEER_TIMEOUT_S = 30.0
_EVERSTEP = (sys.executable, "-P", "-m", "everstep.entry", "run", "--standalone")
_TORCHRUN = (
    *(sys.executable, "-m", "torch.distributed.run"),
    *("--standalone", "--max-restarts=1"),
)
_BOUND_S = 120.0
_POLL_S = 0.2
_RECOVERED_S, _DETECTED_S = 10.0, 10.0


@dataclass(slots=True)
class Recovery:
    """What became of one job: seconds since its fault; None where that never came."""

    marks: dict[str, float] = field(default_factory=dict)
    next_step_s: float | None = None
    ended_s: float | None = None
    restarts: int = 0


def main() -> int:
    """Measure, and print the table."""
    parser = arguments((__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=_HOWS, help="one kind")
    options = parser.parse_args()
    hows = [options.only] if options.only else _HOWS
    show([one for how in hows for one in _rows(how, options.repeats)], options.json)
    return 0


def _rows(how: str, repeats: int) -> Iterator[Row]:
    if how == "long":
        found = [_everstep("stop", _LONG_WARM_S, _LONG_STEP_S, _LONG_CALLS, "JobStalled")]
        yield from _marks("20 s steps of 40 collectives, stop", found, _DETECTED_S)
        return
    found = [_everstep(how, _WARM_S, _STEP_S, 2, "") for _ in range(repeats)]
    yield from _marks(how, found, None)
    if how in _STUCK:
        peers = [_torchrun(how) for _ in range(repeats)]
        yield from _beside(how, found, peers)
    elif how in _PROGRAM:
        ends = [_BOUND_S if one.ended_s is None else one.ended_s for one in found]
        yield row(f"{how} → end of the job", ends, "s", target=_RECOVERED_S)
    else:
        yield row(f"{how}: restarts", [float(one.restarts) for one in found], "", target=0.0)


def _beside(how: str, found: Sequence[Recovery], peers: Sequence[Recovery]) -> Iterator[Row]:
    """Yield the new step beside the peer's; a peer that made none in any run has no time."""
    came = [one.next_step_s for one in peers if one.next_step_s is not None]
    named = f"torchrun, timeout 30 s: {how} → new step"
    peer = row(named, came, "s") if came else None
    yield row(f"{how} → new step", _next_steps(found), "s", peer, _RECOVERED_S)
    if peer is not None:
        yield peer
    without = float(len(peers) - len(came))
    yield row(f"{named}: runs of {len(peers)} without one", [without], "")


def _marks(how: str, found: Sequence[Recovery], target: float | None) -> Iterator[Row]:
    for mark, words in (("JobStalled", "seen to stand still"), ("HangJudged", "verdict")):
        seconds = [one.marks[mark] for one in found if mark in one.marks]
        if seconds:
            of = target if mark == "JobStalled" else None
            yield row(f"{how} → {words}", seconds, "s", target=of)


def _next_steps(found: Sequence[Recovery]) -> list[float]:
    return [_BOUND_S if one.next_step_s is None else one.next_step_s for one in found]


def _everstep(how: str, warm_s: float, step_s: float, calls: int, until: str) -> Recovery:
    """Run a job with a hang until it trains again, ends, or ``until`` is told of it."""
    with _Run(how, warm_s, step_s, calls, 0.0) as run:
        words = [f"--job=hang-{os.getpid()}", f"--nproc-per-node={_RANKS}", "--", sys.executable]
        run.start([*_EVERSTEP, *words])
        while not run.is_over(until):
            run.read_events()
            time.sleep(_POLL_S)
        return run.recovery()


def _torchrun(how: str) -> Recovery:
    with _Run(how, _WARM_S / 4, _STEP_S, 2, _PEER_TIMEOUT_S) as run:
        run.start([*_TORCHRUN, f"--nproc-per-node={_RANKS}"])
        while not run.is_over(""):
            time.sleep(_POLL_S)
        return run.recovery()


class _Run:
    """One job in a folder of its own, ended with everything that it started."""

    def __init__(
        self, how: str, warm_s: float, step_s: float, calls: int, timeout_s: float
    ) -> None:
        self._how = how
        self._words = [str(one) for one in (how, warm_s, step_s, calls, timeout_s)]
        self._most_s = warm_s + 60.0
        self._began_s = time.monotonic()
        self._ended_ns = 0
        self._seen: dict[str, int] = {}
        self._restarts = 0

    def __enter__(self) -> "_Run":
        self._folder = Path(tempfile.mkdtemp(prefix="es-hang-"))
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                self._process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, launcher: Sequence[str]) -> None:
        """Start it."""
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        with (self._folder / "output").open("wb") as said:
            self._process = subprocess.Popen(
                [*launcher, str(_SCRIPT), str(self._folder), *self._words],
                stdout=said,
                stderr=subprocess.STDOUT,
                env=environ,
            )

    def is_over(self, until: str) -> bool:
        """Return whether what is waited for has come, or can come no more."""
        if self._process.poll() is not None:
            self._ended_ns = self._ended_ns or time.time_ns()
            return True
        fault_ns = self._fault_ns()
        if not fault_ns:
            return time.monotonic() - self._began_s > self._most_s
        if time.time_ns() - fault_ns > _BOUND_S * 1e9 or (until and until in self._seen):
            return True
        # What is ended for a fault of the program makes no further step.
        return not until and self._next_step_ns() > 0

    def read_events(self) -> None:
        """Take what the controller tells of the job."""
        sockets = [line for line in self._said().splitlines() if "EVERSTEP_CONTROLLER=" in line]
        if not sockets:
            return
        address = sockets[0].partition("EVERSTEP_CONTROLLER=")[2].partition(";")[0]
        with contextlib.suppress(AdminError):
            with connect(Connection(address=address, timeout_s=2.0)) as admin:
                events = list(admin.events("", 1000, follow=False))
            for event in events:
                if event.at_ns > (self._fault_ns() or sys.maxsize):
                    self._seen.setdefault(event.reason, event.at_ns)
            self._restarts = sum(event.reason == "JobStarting" for event in events) - 1

    def recovery(self) -> Recovery:
        """Return what became of it."""
        fault_ns = self._fault_ns()
        if not fault_ns:
            print(f"{self._how}: no fault came\n{self._said()[-2000:]}", file=sys.stderr)
            return Recovery()
        step_ns = self._next_step_ns()
        found = Recovery(
            marks={reason: (at_ns - fault_ns) / 1e9 for reason, at_ns in self._seen.items()},
            next_step_s=(step_ns - fault_ns) / 1e9 if step_ns else None,
            ended_s=(self._ended_ns - fault_ns) / 1e9 if self._ended_ns else None,
            restarts=max(0, self._restarts),
        )
        told = {name: round(seconds, 1) for name, seconds in found.marks.items()}
        print(f"{self._how}: {found.next_step_s}, {found.ended_s}, {told}", file=sys.stderr)
        return found

    def _said(self) -> str:
        return (self._folder / "output").read_text(errors="replace")

    def _fault_ns(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int((self._folder / "fault").read_text())
        return 0

    def _next_step_ns(self) -> int:
        """Return when a step was complete that had not been begun at the fault; 0: none was."""
        with contextlib.suppress(OSError):
            lines = (self._folder / "steps").read_text().splitlines()
            steps = [tuple(map(int, line.split())) for line in lines]
            return next((at_ns for _, at_ns in steps if at_ns > self._fault_ns()), 0)
        return 0


if __name__ == "__main__":
    sys.exit(main())
