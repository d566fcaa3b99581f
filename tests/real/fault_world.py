"""A fleet that runs one job, the faults that befall it, and what must be true after all of them."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from everstep_cli.client.admin import AdminError
from everstep_cli.demo import reaper
from everstep_cli.demo.processes import Child
from everstep_cli.demo.reaper import MARK
from everstep_proto.tls import TlsSettings
from integration.real_fleet import JOB, Place, RealFleet, running_fleet

PATIENCE_S = 90.0


@dataclass(slots=True)
class FaultWorld:
    """What a test of faults sees and does; made by ``fault_world``."""

    fleet: RealFleet
    script: Sequence[str]
    options: Sequence[str]
    # Nodes that have lost something and have not been brought back.
    down: set[str] = field(default_factory=set)

    @property
    def folder(self) -> Path:
        """Return where the ranks write."""
        return self.fleet.folder / "losses"

    # --- what runs -------------------------------------------------------------------------------

    def launch(self, *names: str) -> None:
        """Start the launchers of these nodes; of all when none is named."""
        for name in names or self.fleet.nodes:
            line = ["--job", JOB, "--socket", str(self._socket(name)), *self.options]
            line += ["--token-file", str(self.fleet.folder / "token")]
            self.fleet.start_launcher(name, *line, "--", sys.executable, *self.script)

    def state(self) -> str:
        """Return the state of the job; empty while the controller is away."""
        return self.fleet.job().state

    def members(self) -> list[str]:
        """Return the nodes that have ranks, in rank order."""
        return list(self.fleet.job().members)

    def until(self, what: str, so: Callable[[], bool]) -> None:
        """Poll until it is so."""
        self.fleet.until(what, PATIENCE_S, so)

    def training(self) -> None:
        """Return when the newest generation has made some steps that are recoverable."""
        self.reached(3)

    def recoverable(self) -> int:
        """Return the newest step that is recoverable without any one node; -1: none."""
        with suppress(AdminError):
            sheet = self.fleet.sheet(JOB)
            return sheet.recoverable_step if sheet.has_recoverable else -1
        return -1

    def gate(self, step: int) -> None:
        """Let the ranks of a gated job train up to this step."""
        self._put("gate", str(step))

    def reached(self, step: int) -> None:
        """Return when this step, or a later one, is recoverable without any one node."""
        self.until(f"step {step}", lambda: self.recoverable() >= step)

    def computed(self, step: int) -> None:
        """Return when a rank has computed this step."""
        self.until(f"step {step}", lambda: max(self.fleet.losses(), default=-1) >= step)

    # --- faults ----------------------------------------------------------------------------------

    def kill_process(self, name: str) -> None:
        """Kill the newest rank of a node; its launcher lives. Nothing where none runs."""
        for pid in self.ranks(name):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_agent(self, name: str) -> None:
        """Kill the agent of a node, nothing else."""
        _kill(self.fleet.agents.pop(name))
        self.down.add(name)

    def kill_launcher(self, name: str) -> None:
        """Kill the launcher of a node; its ranks end with it."""
        _kill(self.fleet.launchers[name])
        self.down.add(name)

    def kill_node(self, *names: str) -> None:
        """Kill everything on some nodes at once."""
        agents = [self.fleet.agents.pop(name) for name in names if name in self.fleet.agents]
        children = [*agents, *(self.fleet.launchers[name] for name in names)]
        for process in self.fleet.owned.below(*children):
            reaper.kill(process)
        for child in children:
            child.process.wait(20)
        self.down |= set(names)

    def kill_controller(self) -> None:
        """Kill the controller and start it again."""
        self.fleet.end_controller()
        self.fleet.start_controller()

    def revive(self, *names: str) -> None:
        """Start again what is missing on these nodes."""
        for name in names:
            if name not in self.fleet.agents:
                self.fleet.start_agent(name)
        for name in names:
            self.until("its agent", partial(_answers, self._socket(name)))
            if self.fleet.launchers[name].exit_code is not None:
                self.launch(name)
            self.down.discard(name)

    def signal_launcher(self, name: str, number: int) -> None:
        """Stop a launcher, or let it go on."""
        os.kill(self.fleet.launchers[name].process.pid, number)

    def _socket(self, name: str) -> Path:
        return self.fleet.folder / name / "run" / "agent.sock"

    def ranks(self, name: str) -> list[int]:
        below = self.fleet.owned.below(self.fleet.launchers[name])
        told = {int(words[0]) for words in self._told().values()}
        return [process.pid for process in below if process.pid in told]

    def _told(self) -> dict[tuple[int, str], list[str]]:
        """Return the process and the rendezvous of each rank, by its generation and its file."""
        paths = sorted(self.folder.glob("rank-*-*"))
        texts = {(int(path.name.split("-")[1]), path.name): path.read_text() for path in paths}
        return {key: text.split() for key, text in texts.items() if text}

    def rendezvous(self) -> dict[int, str]:
        """Return address and port of each generation's rendezvous."""
        return {generation: words[1] for (generation, _), words in self._told().items()}

    # --- holding a recovery ----------------------------------------------------------------------

    def hold(self, point: str) -> None:
        """Have every rank wait at a point of its start; "" lets them go on."""
        self._put("hold", point)

    def _put(self, name: str, text: str) -> None:
        part = self.folder / f"{name}.part"
        part.write_text(text, encoding="ascii")
        part.rename(self.folder / name)

    def held(self) -> bool:
        """Return whether a rank of a generation after the first waits there."""
        return any(not path.name.endswith("-1") for path in self.folder.glob("held-*"))

    # --- what must be true -----------------------------------------------------------------------

    def ends_well(self, wanted: dict[int, str]) -> None:
        """Wait for the job's end, and check all that must be true of it."""
        launchers = [child for name, child in self.fleet.launchers.items() if name not in self.down]
        self.until("the end", lambda: all(child.exit_code is not None for child in launchers))
        assert {child.exit_code for child in launchers} == {0}, self.fleet.logs()
        self.until("its end is known", lambda: self.state() == "ended")
        # One that was computed twice had the same loss, to the bit.
        assert not self.wrong(wanted), self.fleet.logs()
        assert sorted(self.fleet.losses()) == sorted(wanted)
        ledger = self.fleet.ledger(JOB)
        assert sum(category.time_ns for category in ledger.categories) == ledger.wall_ns
        assert all(category.time_ns > 0 for category in ledger.categories)
        assert all(incident.over_ns for incident in ledger.incidents), ledger.incidents
        # What is left of an older rendezvous is never found by a newer generation.
        rendezvous = self.rendezvous()
        assert len(set(rendezvous.values())) == len(rendezvous), rendezvous
        self.until("no process is left", lambda: not self._left())

    def wrong(self, wanted: dict[int, str]) -> list[tuple[str, int, str, str]]:
        """Return by file and step every loss that is not as wanted."""
        found = []
        for path in sorted(self.folder.glob("*.tsv")):
            words = path.read_text(encoding="ascii").rpartition("\n")[0].split()
            pairs = zip(map(int, words[::2]), words[1::2], strict=True)
            found += [(path.stem, n, loss, wanted[n]) for n, loss in pairs if loss != wanted[n]]
        return found

    def _left(self) -> list[int]:
        """Return what still runs of the job."""
        mark = str(self.fleet.folder)
        return [
            pid
            for pid in reaper.parents()
            if "EVERSTEP_JOB" in (found := reaper.environment(pid)) and found.get(MARK) == mark
        ]


def _kill(child: Child) -> None:
    child.process.kill()
    child.process.wait(20)


def _answers(path: Path) -> bool:
    """Return whether an agent listens: a killed one leaves the name of its socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        try:
            asking.connect(str(path))
        except OSError:
            return False
        return True


@contextmanager
def fault_world(
    nodes: Sequence[str],
    script: Sequence[object],
    *options: str,
    places: Mapping[str, Place] | None = None,
    tls: TlsSettings | None = None,
    core_lines: tuple[str, ...] = (),
    at_port: bool = False,
) -> Iterator[FaultWorld]:
    """Yield a fleet of these nodes; nothing of the job runs yet."""
    # With so few nodes two are the larger part of them, and it would wait for a minute.
    core = ("loss_hold_s = 3.0", *core_lines)
    with running_fleet(*nodes, core_lines=core, places=places, tls=tls, at_port=at_port) as fleet:
        yield FaultWorld(fleet, [str(word) for word in script], options)


def alone(folder: Path, script: Sequence[object]) -> dict[int, str]:
    """Return the losses of a run of this script without Everstep around it and without a fault."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_")}
    environ |= {"LOSSES": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, *map(str, script)], env=environ, check=True, timeout=120)
    (path,) = folder.glob("*.tsv")
    words = path.read_text(encoding="ascii").split()
    return {int(step): loss for step, loss in zip(words[::2], words[1::2], strict=True)}
