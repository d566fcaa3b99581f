"""Fleet of the recovery benchmark: controller, agents and launchers, started as a user would."""

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.daemons import agent_command, controller_command, secret_file
from harness.peers import python
from harness.processes import START_PATIENCE_S, free_port
from vault.nodes import RANK_PATH

from everstep_cli.client.admin import Admin, AdminError, list_nodes
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_admin import connect
from everstep_cli.demo.processes import Child, OwnedProcesses
from everstep_cli.demo.reaper import kill as kill_surely
from everstep_proto.generated import admin_pb2

JOB = "bench"
SCRIPT = Path(__file__).with_name("rank.py")
# More than any run takes: the benchmark ends it, not the script.
STEPS = 1_000_000
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class Shape:
    """Layout of a job over nodes, and the options of its launcher."""

    nodes: int = 1
    spares: int = 0
    processes: int = 4
    # Warm standby processes, which the launcher has unless it is told otherwise.
    standby: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """Return the nodes that are needed."""
        return tuple(f"node-{number}" for number in range(1, self.nodes + self.spares + 1))

    @property
    def ranks(self) -> int:
        """Return the number of training processes."""
        return self.nodes * self.processes

    def launcher(
        self, token: Path, socket: Path, program: Sequence[str | Path]
    ) -> list[str | Path]:
        """Return the command of a node's launcher: the one place that knows its options."""
        command: list[str | Path] = [sys.executable, "-m", "everstep.entry", "run", "--job", JOB]
        command += ["--nnodes", str(self.nodes), "--nproc-per-node", str(self.processes)]
        command += ["--token-file", token, "--socket", socket]
        command += ["--standby", "imports" if self.standby else "none"]
        return [*command, "--", *program]


def plain_environment() -> dict[str, str]:
    """Return this process's variables without what belongs to another job."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_")}
    # The peers' environment has a package that warns of itself at each import of torch.
    return environ | {"PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}


@dataclass(slots=True)
class Fleet:
    """A running cluster on loopback, in one folder."""

    folder: Path
    owned: OwnedProcesses
    shape: Shape
    port: int = field(default_factory=free_port)
    controller: Child | None = None
    agents: dict[str, Child] = field(default_factory=dict)
    launchers: dict[str, Child] = field(default_factory=dict)

    @property
    def steps_folder(self) -> Path:
        """Return where the ranks write."""
        return self.folder / "steps"

    def start(self) -> None:
        """Start controller, agents and launchers."""
        self.steps_folder.mkdir()
        command = controller_command(self.folder, self.port)
        with Path(command[-1]).open("a") as config:
            config.write('[core]\nmode = "enforce"\n')
        self.start_controller()
        for name in self.shape.names:
            self._start_agent(name)
        self.until("healthy nodes", START_PATIENCE_S, self._healthy)
        for name in self.shape.names:
            self._launch(name)

    def start_controller(self) -> None:
        """Start the controller, on its journal if it has one."""
        command = [sys.executable, "-m", "everstep_controller.main"]
        command += ["--config", str(self.folder / "controller.toml")]
        self.controller = self.owned.start("controller", command, plain_environment())

    def kill_controller(self) -> None:
        """SIGKILL the controller and see it go."""
        assert self.controller is not None
        self.controller.process.send_signal(signal.SIGKILL)
        self.controller.process.wait(20)

    def kill_node(self, name: str) -> None:
        """SIGKILL all of a node at once: agent, launcher, ranks and what they started."""
        for process in self.owned.below(self.agents[name], self.launchers[name]):
            kill_surely(process)

    def until_warm(self) -> None:
        """Return when every launcher, of spares as well, has its standbys."""
        if self.shape.standby:
            self.until("warm standbys", 120.0, self._warm)

    def _warm(self) -> bool:
        return all(_is_warm(child.log.read_bytes()) for child in self.launchers.values())

    def ledger(self) -> admin_pb2.Ledger:
        """Return the ledger of the job."""
        with self._admin() as admin:
            return admin.call(lambda stub: stub.GetLedger, admin_pb2.GetLedgerRequest(job=JOB))

    def faults_told(self) -> list[int]:
        """Return when the controller stopped the job for a fault, each time."""
        with self._admin() as admin:
            told = list(
                admin.stream(
                    lambda stub: stub.WatchEvents,
                    admin_pb2.WatchEventsRequest(subject=JOB, limit=1000),
                )
            )
        return [event.at_ns for event in told if event.reason == "JobFault"]

    def node_of(self, pid: int) -> str:
        """Return the node on which a process runs."""
        for name, launcher in self.launchers.items():
            if any(process.pid == pid for process in self.owned.below(launcher)):
                return name
        raise SystemExit(f"process {pid} is below no launcher")

    def until(self, what: str, patience_s: float, so: Callable[[], bool]) -> None:
        """Return when it is so. Raises SystemExit after a while."""
        until(self.owned, what, patience_s, so)

    def _healthy(self) -> bool:
        try:
            with self._admin() as admin:
                states = {node.node: node.state for node in list_nodes(admin).nodes}
        except AdminError:
            return False
        return all(
            states.get(name) == "healthy" and self._socket(name).exists()
            for name in self.shape.names
        )

    def _admin(self) -> AbstractContextManager[Admin]:
        address, secret = f"127.0.0.1:{self.port}", secret_file(self.folder)
        return connect(Connection(address=address, secret_file=secret, timeout_s=5.0))

    def _start_agent(self, name: str) -> None:
        folder = self.folder / name
        folder.mkdir()
        (folder / "kernel.log").touch()
        more = f'host = "127.0.0.1"\ndomain = "rack-{name}"\nkernel_log = "{folder}/kernel.log"\n'
        secret = secret_file(self.folder)
        command = agent_command(folder, self.port, 0, more, name, secret=secret)
        with Path(command[-1]).open("a") as config:
            config.write('bulk_host = "127.0.0.1"\n')
        line = [str(word) for word in command]
        self.agents[name] = self.owned.start(f"{name}-agent", line, plain_environment())

    def _launch(self, name: str) -> None:
        program = (python(), SCRIPT, self.steps_folder, "everstep", str(STEPS))
        line = self.shape.launcher(self.folder / "token", self._socket(name), program)
        environ = plain_environment() | {"PYTHONPATH": RANK_PATH}
        words = [str(word) for word in line]
        self.launchers[name] = self.owned.start(f"{name}-launcher", words, environ)

    def _socket(self, name: str) -> Path:
        return self.folder / name / "run" / "agent.sock"


def until(owned: OwnedProcesses, what: str, patience_s: float, so: Callable[[], bool]) -> None:
    """Return when it is so. Raises SystemExit after a while, with what was printed."""
    deadline = time.monotonic() + patience_s
    while not so():
        record_descendants(owned)
        if time.monotonic() > deadline:
            ends = "\n".join(f"{c.name}: {c.last_lines(5)}" for c in owned.children)
            raise SystemExit(f"{what}: not within {patience_s:g} s\n{ends}")
        time.sleep(_LOOK_S)


def record_descendants(owned: OwnedProcesses) -> None:
    """Write down what runs, and give each session of it the priority of this process.

    Linux shares processors between sessions first (sched(7), autogroups): torchrun's ranks have one
    each, others' share one, and ``nice`` counts only inside of each. On a machine that does other
    things as well, ``nice -n -20`` and this make all launchers equal.
    """
    owned.record_descendants()
    priority = os.getpriority(os.PRIO_PROCESS, 0)
    if priority:
        for process in owned.below(*owned.children):
            with suppress(OSError):
                Path(f"/proc/{process.pid}/autogroup").write_text(str(priority))


def _is_warm(log: bytes) -> bool:
    # Those that were made before the ranks began know less, and so does a spare until it is told.
    _, here, since = log.rpartition(b"ranks run here")
    told = b"(--standby none: no standbys)" if here else b"with what ranks of other nodes import"
    return told in since
