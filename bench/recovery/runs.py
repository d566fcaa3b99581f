"""Runs of the recovery benchmark: one job with a fault, under Everstep or a peer, cleaned up."""

import contextlib
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from harness.processes import START_PATIENCE_S
from recovery.fleet import SCRIPT, STEPS, Fleet, Shape, plain_environment, record_descendants, until
from recovery.launchers import Peer
from recovery.marks import RankLog, Recovery, common_step, read_logs, recovery

from everstep_cli.client.admin import AdminError
from everstep_cli.demo.processes import Child, OwnedProcesses

# A peer that has not come back by then is not waited for.
BOUND_S = 90.0
# Enough for allocators, sockets and snapshots to be as they stay.
_STEPS_BEFORE = 30
_START_S = START_PATIENCE_S
# The rank that dies: neither the one that hosts the rendezvous nor the last.
_VICTIM = 2
_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Cost of a fault; ``why_not`` is one sentence where nothing came back within the bound."""

    recovery: Recovery
    why_not: str = ""
    # Seconds by category of the ledger, and until the controller stopped the job for it.
    stages: Mapping[str, float] = field(default_factory=dict)
    detected_s: float = 0.0


def tell(name: str, outcome: Outcome) -> Outcome:
    """Print it at once: rounds take minutes, and what fails later must not take it along."""
    found = outcome.recovery
    marks = ", ".join(f"{mark} {seconds:.2f}" for mark, seconds in found.marks.items())
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in outcome.stages.items())
    told = f"{name}: {found.seconds:.2f} s, {found.lost_steps} lost; {marks}; {stages}"
    print(f"  {told} {outcome.why_not}".rstrip(" ;"), file=sys.stderr, flush=True)
    return outcome


@dataclass(frozen=True, slots=True)
class Watched:
    """Processes, and what their ranks write down."""

    owned: OwnedProcesses
    steps: Path
    ranks: int

    def logs(self) -> list[RankLog]:
        """Return what the ranks have written."""
        return read_logs(self.steps)

    def until_stepping(self) -> None:
        """Return when the job has made so many steps that it is in its stride."""
        until(self.owned, "first steps", _START_S, self._stepping)

    def _stepping(self) -> bool:
        return common_step(self.logs(), self.ranks) >= _STEPS_BEFORE

    def victim(self, rank: int = _VICTIM) -> int:
        """Return the process of a rank."""
        return [log.pid for log in self.logs() if log.rank == rank][-1]

    def wait(self, fault_ns: int, over: Callable[[], str]) -> tuple[Recovery, str]:
        """Wait for a new step, until the bound, or until ``over`` says why none will come."""
        deadline = time.monotonic() + BOUND_S
        why_not = ""
        while not why_not:
            record_descendants(self.owned)
            found = recovery(self.logs(), self.ranks, fault_ns)
            if found is not None:
                return found, ""
            if time.monotonic() > deadline:
                why_not = f"no new step within {BOUND_S:g} s"
            why_not = why_not or over()
            time.sleep(0.05)
        return Recovery(BOUND_S, 0, {}), why_not


def boot_ns() -> int:
    """Return the clock that the ranks write."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def kill(pid: int) -> int:
    """SIGKILL a process; return when."""
    at_ns = boot_ns()
    os.kill(pid, signal.SIGKILL)
    return at_ns


@contextlib.contextmanager
def owned(base: Path | None = None) -> Iterator[tuple[OwnedProcesses, Path]]:
    """Yield a folder and who starts processes in it; both end, even if this process is killed."""
    # A short path: the name of a socket in it has 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="es", dir=base))
    home = OwnedProcesses(folder, keep=False)
    try:
        yield home, folder
    finally:
        home.close()


@contextlib.contextmanager
def everstep_job(shape: Shape) -> Iterator[tuple[Fleet, Watched]]:
    """Yield a job under Everstep that is making steps."""
    with owned() as (home, folder):
        fleet = Fleet(folder, home, shape)
        fleet.start()
        watched = Watched(home, fleet.steps_folder, shape.ranks)
        watched.until_stepping()
        fleet.until_warm()
        yield fleet, watched


def everstep_outcome(shape: Shape, fault: Callable[[Fleet, Watched], int]) -> Outcome:
    """Return what a fault costs under Everstep."""
    with everstep_job(shape) as (fleet, watched):
        fault_ns = fault(fleet, watched)
        found, why_not = watched.wait(fault_ns, lambda: _ended(fleet.launchers.values()))
        if why_not:
            return tell("everstep", Outcome(found, why_not))
        return tell("everstep", _with_ledger(fleet, found, fault_ns))


def _with_ledger(fleet: Fleet, found: Recovery, fault_ns: int) -> Outcome:
    """Add what the ledger says of the newest incident."""
    fleet.until("an incident that is over", 30.0, lambda: _over(fleet))
    incident = fleet.ledger().incidents[-1]
    stages = {cost.name: cost.time_ns / 1e9 for cost in incident.costs}
    # The controller's timeline is the wall clock of this machine, the ranks' the boot clock.
    since_ns = fault_ns + time.time_ns() - boot_ns()
    told = [at_ns for at_ns in fleet.faults_told() if at_ns >= since_ns]
    return Outcome(found, "", stages, (min(told) - since_ns) / 1e9 if told else 0.0)


def _over(fleet: Fleet) -> bool:
    try:
        incidents = fleet.ledger().incidents
    except AdminError:  # the controller may be the one that was killed
        return False
    return bool(incidents) and incidents[-1].over_ns > 0


def peer_outcome(peer: Peer, processes: int) -> Outcome:
    """Return what a killed rank costs under a peer."""
    with owned(_SHARED_MEMORY) as (home, folder):
        _start_master(home, peer)
        steps = folder / "steps"
        steps.mkdir()
        line = [*peer.command, str(SCRIPT), str(steps), "file", str(STEPS)]
        child = home.start("peer", line, plain_environment() | dict(peer.variables))
        watched = Watched(home, steps, processes)
        watched.until_stepping()
        found, why_not = watched.wait(kill(watched.victim()), lambda: _ended([child]))
        return tell(peer.name, Outcome(found, why_not))


def _start_master(home: OwnedProcesses, peer: Peer) -> None:
    if peer.master:
        home.start("master", peer.master, plain_environment())
        until(home, "the master", 30.0, lambda: _answers(peer.master_port))


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _ended(children: Collection[Child]) -> str:
    """Say that all launchers have ended, if they have."""
    codes = [child.exit_code for child in children]
    if None in codes:
        return ""
    return f"its launcher gave up with exit code {codes[0]}"
