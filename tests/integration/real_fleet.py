"""A real controller, real agents and a real job, each in processes of their own, for tests."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from everstep_cli.client.admin import Admin, AdminError, list_nodes
from everstep_cli.client.connection import Connection
from everstep_cli.client.grpc_admin import connect
from everstep_cli.demo import reaper
from everstep_cli.demo.processes import Child, OwnedProcesses
from everstep_cli.demo.reaper import Identity
from everstep_proto.generated import admin_pb2
from everstep_proto.tls import TlsSettings
from fakes.ports import reserved_port
from fakes.waits import wait_until

JOB = "train"
TRAINING = Path(__file__).parents[2] / "examples" / "train_numpy.py"
_RECORD_EVERY_S = 0.5
# Daemons that start together import for a while on a busy machine.
_START_PATIENCE_S = 180.0
# Each generation writes a file of its own, so that it can be told which computed what.
_PER_GENERATION = 'exec "$@" --losses "$LOSSES/$EVERSTEP_GENERATION.tsv"'


@dataclass(frozen=True, slots=True)
class Place:
    """Where the processes of a node or of the controller run, if not beside all others."""

    host: str = "127.0.0.1"
    # The command that runs another one there.
    enter: tuple[str, ...] = ()
    # The table of its configuration that names its certificate.
    tls: str = ""


@dataclass(slots=True)
class RealFleet:
    """What belongs to one test; ``running_fleet`` makes it and leaves nothing of it."""

    folder: Path
    owned: OwnedProcesses
    admin: Admin
    nodes: tuple[str, ...]
    # More lines for the top of every agent's configuration.
    agent_lines: tuple[str, ...] = ()
    # More lines for the table [jobs] of it.
    jobs_lines: tuple[str, ...] = ()
    # More lines for the table [core] of the controller's configuration.
    core_lines: tuple[str, ...] = ()
    # More variables for every process.
    variables: Mapping[str, str] = field(default_factory=dict)
    # More options for every launcher.
    launcher_options: tuple[str, ...] = ()
    # By the name of the node, and "controller".
    places: Mapping[str, Place] = field(default_factory=dict)
    # Where /metrics of a node or of the controller is, by its name; a free port without one.
    metrics_ports: Mapping[str, int] = field(default_factory=dict)
    # Of the controller; without certificates ``at_port`` asks for a secret.
    address: str = ""
    at_port: bool = False
    # Packages of another version, for "controller", "agent" or "launcher".
    packages: Mapping[str, Sequence[Path]] = field(default_factory=dict)
    # The address of a database that has the journal, instead of a file.
    journal_url: str = ""
    # Of the job that is launched and asked about: jobs that share a fleet have a name each.
    job_name: str = JOB
    controller: Child | None = None
    agents: dict[str, Child] = field(default_factory=dict)
    launchers: dict[str, Child] = field(default_factory=dict)

    @property
    def journal(self) -> Path:
        """Return the controller's journal."""
        return self.folder / "journal.sqlite"

    @property
    def _journal_lines(self) -> str:
        if self.journal_url:
            return f'journal = "{self.journal_url}"\nstate_folder = "{self.folder}"\n'
        return f'journal = "{self.journal}"\n'

    @property
    def secret(self) -> Path:
        """Return the file of what is shown to a controller on loopback without certificates."""
        return self.folder / "secret"

    @property
    def _secret_line(self) -> str:
        # Only where it counts: older versions know no such key.
        return f'secret_file = "{self.secret}"\n' if self.at_port else ""

    @property
    def losses_folder(self) -> Path:
        """Return where the ranks of the job write; of jobs that share a fleet, each has its own."""
        return self.folder / ("losses" if self.job_name == JOB else f"losses-{self.job_name}")

    def start_controller(self, *command: str) -> None:
        """Start the controller, or one of its commands."""
        config, place = self.folder / "controller.toml", self._place("controller")
        config.write_text(
            f'listen = "{self.address}"\nmetrics = "{self._metrics("controller")}"\n'
            'log_style = "text"\n'
            f'{self._journal_lines}{self._secret_line}[core]\nmode = "enforce"\n'
            "startup_grace_s = 20.0\nrecover_listen_s = 6.0\n"
            + "".join(f"{line}\n" for line in self.core_lines)
            + place.tls
        )
        line = ["-m", "everstep_controller.main", *command, "--config", str(config)]
        self.controller = self._start("controller", *line)

    def end_controller(self, number: int = signal.SIGKILL) -> None:
        """End the controller with a signal and see it go."""
        assert self.controller is not None
        ended, self.controller = self.controller, None
        ended.process.send_signal(number)
        ended.process.wait(20)

    def start_agent(self, name: str) -> None:
        """Start a node."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "kernel.log").touch()
        config = self.folder / f"{name}.toml"
        lines = "".join(f"{line}\n" for line in self.agent_lines)
        place = self._place(name)
        config.write_text(
            lines + f'node = "{name}"\ncontroller = "{self.address}"\n'
            f"{self._secret_line}"
            f'host = "{place.host}"\nliveness_address = "{place.host}:0"\n'
            f'domain = "rack-{name}"\ndata_folder = "{folder}"\n'
            f'metrics_address = "{self._metrics(name)}"\n'
            f'kernel_log = "{folder / "kernel.log"}"\nlog_style = "text"\n'
            f'[jobs]\nruntime_folder = "{folder / "run"}"\nbulk_port = 0\n'
            f'bulk_host = "{place.host}"\n'
            + "".join(f"{line}\n" for line in self.jobs_lines)
            + place.tls
        )
        self.agents[name] = self._start(
            f"{name}-agent", "-m", "everstep_agent.main", "--config", str(config)
        )

    def launch(self, steps: int, step_s: float) -> None:
        """Start the job on all nodes."""
        self.launch_script(
            [str(TRAINING), "--steps", str(steps), "--step-seconds-min", str(step_s)]
        )

    def launch_script(self, arguments: Sequence[str], processes: int = 1, nodes: str = "") -> None:
        """Start a job of this script on all nodes."""
        for name in self.nodes:
            self.launch_on(name, arguments, processes, nodes)

    def launch_on(
        self, name: str, arguments: Sequence[str], processes: int = 1, nodes: str = ""
    ) -> None:
        """Start the launcher of a job of this script on one node."""
        self.losses_folder.mkdir(exist_ok=True)
        options = ["--job", self.job_name, "--nnodes", nodes or str(len(self.nodes))]
        options += ["--nproc-per-node", str(processes)]
        options += ["--token-file", str(self.folder / "token")]
        options += ["--socket", str(self.folder / name / "run" / "agent.sock")]
        options += self.launcher_options
        script = ["sh", "-c", _PER_GENERATION, "sh", sys.executable, *arguments]
        self.start_launcher(name, *options, "--", *script)

    def end_launchers(self) -> None:
        """End the job, so that another one can have its nodes."""
        launchers = [self.launchers.pop(name) for name in list(self.launchers)]
        for launcher in launchers:
            launcher.process.terminate()
        self.until(
            "no job", _START_PATIENCE_S, lambda: all(one.exit_code is not None for one in launchers)
        )

    def start_launcher(self, name: str, *arguments: str) -> None:
        """Start `everstep run` on a node."""
        line = ["-m", "everstep.entry", "run", *arguments]
        # Jobs that share a fleet have a log each.
        job = "" if self.job_name == JOB else f"-{self.job_name}"
        self.launchers[name] = self._start(f"{name}{job}-launcher", *line, node=name)

    def start_other_launcher(self, name: str, *line: str) -> None:
        """Start a program of Python that takes the place of `everstep run` on a node."""
        self.launchers[name] = self._start(f"{name}-launcher", *line)

    def rank(self, name: str) -> Identity | None:
        """Return the training process of a node while it runs."""
        running = self.owned.below(self.launchers[name])
        ranks = [process for process in running if "RANK" in reaper.environment(process.pid)]
        return ranks[-1] if ranks else None

    def healthy(self) -> bool:
        """Return whether every node is, and takes launchers."""
        try:
            states = {node.node: node.state for node in list_nodes(self.admin).nodes}
        except AdminError:
            return False
        sockets = [self.folder / name / "run" / "agent.sock" for name in self.nodes]
        return all(states.get(name) == "healthy" for name in self.nodes) and all(
            path.exists() for path in sockets
        )

    def job(self) -> admin_pb2.JobSummary:
        """Return the job as the controller tells it; an empty one while it cannot be asked."""
        try:
            return self.sheet(self.job_name).summary
        except AdminError:
            return admin_pb2.JobSummary()

    def recoverable_step(self) -> int:
        """Return the newest recoverable step as the controller tells it; 0 for none."""
        try:
            return self.sheet(self.job_name).recoverable_step
        except AdminError:
            return 0

    def sheet(self, job: str) -> admin_pb2.JobDetail:
        """Return everything known of a job. Raises AdminError."""
        return self.admin.call(lambda stub: stub.GetJob, admin_pb2.GetJobRequest(job=job))

    def ledger(self, job: str) -> admin_pb2.Ledger:
        """Return where the time of a job went. Raises AdminError."""
        return self.admin.call(lambda stub: stub.GetLedger, admin_pb2.GetLedgerRequest(job=job))

    def detail(self, node: str) -> admin_pb2.NodeDetail:
        """Return everything known of a node. Raises AdminError."""
        return self.admin.call(lambda stub: stub.GetNode, admin_pb2.GetNodeRequest(node=node))

    def findings(self, node: str = "") -> Sequence[admin_pb2.FindingLine]:
        """Return the open findings of a node, or of all. Raises AdminError."""
        request = admin_pb2.ListFindingsRequest(node=node)
        return self.admin.call(lambda stub: stub.ListFindings, request).findings

    def step(self) -> int:
        """Return the newest step that any rank has written down."""
        return max(self.losses(), default=0)

    def losses(self) -> dict[int, str]:
        """Return the loss of every step; one that was computed twice had the same, to the bit."""
        found: dict[int, str] = {}
        for path in self.losses_folder.glob("*.tsv"):
            lines = path.read_text(encoding="ascii").split("\n")[:-1]
            for step, loss in (line.split("\t") for line in lines):
                assert found.setdefault(int(step), loss) == loss, f"step {step} differs"
        return found

    def first_steps(self) -> dict[int, int]:
        """Return the first step that each generation computed."""
        paths = self.losses_folder.glob("*.tsv")
        texts = {int(path.stem): path.read_text(encoding="ascii") for path in paths}
        return {number: int(text.split("\t")[0]) for number, text in texts.items() if text}

    def everstep(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command of the command line against the controller."""
        environ = self._environ() | {"COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, "-m", "everstep.entry", *arguments],
            env=environ
            | {"EVERSTEP_CONTROLLER": self.address, "EVERSTEP_SECRET_FILE": str(self.secret)},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def check(self, name: str, *options: str) -> "subprocess.CompletedProcess[str]":
        """Run `everstep-agent check` on a node."""
        config = self.folder / f"{name}.toml"
        line = ["-m", "everstep_agent.main", "check", "--config", str(config), *options]
        return subprocess.run(
            [sys.executable, *line],
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def replay(self) -> "subprocess.CompletedProcess[str]":
        """Replay the journal."""
        return subprocess.run(
            [
                *(sys.executable, "-m", "everstep_controller.main", "replay"),
                *("--config", str(self.folder / "controller.toml")),
            ],
            env=self._environ(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def until(self, what: str, patience_s: float, so: Callable[[], bool]) -> None:
        """Poll until ``so``; real processes have no clock that a test could turn."""
        recorded_s = float("-inf")

        def is_so() -> bool:
            nonlocal recorded_s
            if so():
                return True
            # Every process of the machine is looked at for it, and the reaper has other marks too.
            if time.monotonic() - recorded_s > _RECORD_EVERY_S:
                self.owned.record_descendants()
                recorded_s = time.monotonic()
            needed = [*self.agents.values(), *([self.controller] if self.controller else [])]
            ended = [child.name for child in needed if child.exit_code is not None]
            assert not ended, f"{what}: {ended} ended"
            return False

        try:
            wait_until(is_so, patience_s, f"without {what}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.logs()}") from None

    def logs(self) -> str:
        """Return the end of everything that was logged, and of the controller's events."""
        ends = [f"== {child.name}\n{_tail(child.log)}" for child in self.owned.children]
        return "\n".join([*ends, json.dumps(str(self.job()))])

    def _metrics(self, name: str) -> str:
        return f"127.0.0.1:{self.metrics_ports.get(name, 0)}"

    def _place(self, name: str) -> Place:
        return self.places.get(name, Place())

    def _start(self, name: str, *arguments: str, node: str = "") -> Child:
        place = self._place(node or name.removesuffix("-agent").removesuffix("-launcher"))
        line = [*place.enter, sys.executable, *arguments]
        packages = self.packages.get(name.rpartition("-")[2], ())
        environ = self._environ()
        environ["PYTHONPATH"] = os.pathsep.join([*map(str, packages), environ["PYTHONPATH"]])
        return self.owned.start(name, line, environ)

    def _environ(self) -> dict[str, str]:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_")}
        environ["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
        environ |= {"PYTHONUNBUFFERED": "1", "LOSSES": str(self.losses_folder)}
        return environ | dict(self.variables)


@contextmanager
def running_fleet(
    *nodes: str,
    agent_lines: tuple[str, ...] = (),
    jobs_lines: tuple[str, ...] = (),
    variables: Mapping[str, str] | None = None,
    places: Mapping[str, Place] | None = None,
    tls: TlsSettings | None = None,
    core_lines: tuple[str, ...] = (),
    packages: Mapping[str, Sequence[Path]] | None = None,
    at_port: bool = False,
    metrics_ports: Mapping[str, int] | None = None,
    journal_url: str = "",
) -> Iterator[RealFleet]:
    """Yield a fleet whose controller and agents run.

    Without certificates its controller is at a Unix socket; ``at_port``: at a port, for a secret.
    """
    # A short path: the name of a socket in it has 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="es"))
    (folder / "losses").mkdir()
    owned = OwnedProcesses(folder, keep=False)
    places, tls = places or {}, tls or TlsSettings()
    host = places.get("controller", Place()).host
    try:
        with (
            reserved_port() as port,
            connect(connection := _connection(folder, f"{host}:{port}", tls, at_port)) as admin,
        ):
            fleet = RealFleet(folder, owned, admin, nodes, agent_lines)
            fleet.jobs_lines, fleet.core_lines = jobs_lines, core_lines
            fleet.variables = variables or {}
            fleet.address, fleet.at_port = connection.address, at_port
            fleet.places, fleet.packages = places, packages or {}
            fleet.metrics_ports, fleet.journal_url = metrics_ports or {}, journal_url
            fleet.start_controller()
            for name in nodes:
                fleet.start_agent(name)
            fleet.until("healthy nodes", _START_PATIENCE_S, fleet.healthy)
            yield fleet
    finally:
        owned.close()


def _connection(folder: Path, port: str, tls: TlsSettings, at_port: bool) -> Connection:
    """Return how the controller is asked: without certificates at a socket in its own folder."""
    address = port if tls.enabled or at_port else f"unix:{folder}/c/grpc.sock"
    return Connection(address=address, tls=tls, secret_file=folder / "secret", timeout_s=5.0)


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
