"""Real jobs beside simulated nodes: real agents, launchers and ranks, with several controllers."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from chaos.world import World
from fakes.waits import wait_until
from integration.real_fleet import TRAINING

_HOST = "10.77.0.1"
# Each generation writes a file of its own.
_PER_GENERATION = 'exec "$@" --losses "$LOSSES/$EVERSTEP_GENERATION.tsv"'
_PATIENCE_S = 180.0


@dataclass(slots=True)
class RealJob:
    """A job on nodes of its own, one rank on each."""

    world: World
    name: str
    nodes: Sequence[str]
    _processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    _launchers: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    @property
    def _losses(self) -> Path:
        return self.world.folder / f"losses-{self.name}"

    def start(self) -> None:
        """Start agents and launchers, and wait until the job makes steps."""
        self._losses.mkdir()
        for node in self.nodes:
            self._start_agent(node)
        for node in self.nodes:
            socket = self.world.folder / node / "run/agent.sock"
            wait_until(socket.exists, _PATIENCE_S, f"socket of {node}")
            self._launch(node, socket)
        self.world.until(lambda: self.lines() > 20, f"steps of {self.name}", _PATIENCE_S)

    def _start_agent(self, node: str) -> None:
        world, folder = self.world, self.world.folder / node
        folder.mkdir()
        (folder / "kernel.log").touch()
        tls = world.authority.issue(node, "agent")
        addresses = ", ".join(f'"{one}"' for one in world.addresses)
        (folder / "agent.toml").write_text(
            f'node = "{node}"\ncontroller = [{addresses}]\nhost = "{_HOST}"\n'
            f'liveness_address = "{_HOST}:0"\ndomain = "rack-{node}"\n'
            f'data_folder = "{folder}"\nmetrics_address = ""\nlog_style = "text"\n'
            f'kernel_log = "{folder}/kernel.log"\n'
            f'[jobs]\nruntime_folder = "{folder}/run"\nbulk_port = 0\nbulk_host = "{_HOST}"\n'
            f'[tls]\nca = "{tls.ca}"\ncertificate = "{tls.certificate}"\nkey = "{tls.key}"\n'
            'server_name = "localhost"\n'
        )
        self._start(node, "agent", "everstep_agent.main", "--config", folder / "agent.toml")

    def _launch(self, node: str, socket: Path) -> None:
        script = ["sh", "-c", _PER_GENERATION, "sh", sys.executable, str(TRAINING)]
        self._launchers[node] = self._start(
            node,
            "launcher",
            *("everstep.entry", "run", "--job", self.name, "--nnodes", len(self.nodes)),
            *("--nproc-per-node", 1, "--max-restarts", 10_000, "--socket", socket),
            *("--token-file", self.world.folder / "token", "--", *script),
            *("--steps", 1_000_000, "--step-seconds-min", 0.1),
        )

    def _start(self, node: str, what: str, *words: object) -> "subprocess.Popen[bytes]":
        environ = {k: v for k, v in os.environ.items() if not k.startswith("EVERSTEP_")}
        environ |= {
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONUNBUFFERED": "1",
            "LOSSES": str(self._losses),
            "OPENBLAS_NUM_THREADS": "1",
        }
        with (self.world.folder / f"{node}-{what}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", *map(str, words)],
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._processes.append(process)
        return process

    # --- what it does ----------------------------------------------------------------------------

    def lines(self, after_generation: int = -1) -> int:
        """Return how many steps generations after one have written down."""
        paths = self._losses.glob("*.tsv")
        return sum(
            path.read_bytes().count(b"\n") for path in paths if int(path.stem) > after_generation
        )

    @property
    def generation(self) -> int:
        """Return the newest generation that has made a step."""
        paths = self._losses.glob("*.tsv")
        return max((int(path.stem) for path in paths if path.stat().st_size), default=0)

    def kill_rank(self) -> int:
        """Kill the rank of the last node; return the newest generation before."""
        generation, launcher = self.generation, self._launchers[self.nodes[-1]]
        for process in psutil.Process(launcher.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                if process.environ().get("EVERSTEP_GENERATION") == str(generation):
                    process.kill()
        return generation

    def close(self) -> None:
        """End all its processes at once."""
        found = [psutil.Process(one.pid) for one in self._processes if one.poll() is None]
        for one in [
            *found,
            *(below for above in found for below in above.children(recursive=True)),
        ]:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        for process in self._processes:
            process.wait()
