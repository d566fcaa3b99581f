"""Nodes and ranks of the vault benchmarks: each started in a process of its own."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.processes import BENCH, ROOT, module_command, running
from harness.talk import Talk

from everstep.launch.memcpy_tuning import memcpy_variables

# What a rank needs of Everstep: it runs in an environment in which nothing of it is installed.
RANK_PATH = os.pathsep.join(map(str, (ROOT / "trainer", ROOT / "common", BENCH)))


@dataclass(frozen=True, slots=True)
class BenchNode:
    """Node of a benchmark, running in a process of its own."""

    talk: Talk
    name: str
    socket: Path

    def environment(self, generation: int, processes: int = 1) -> Mapping[str, str]:
        """Return the variables of a rank of this node's job, as its launcher would set them."""
        return {**os.environ, **memcpy_variables(os.environ)} | {
            "EVERSTEP_JOB": "demo",
            "EVERSTEP_TOKEN": "secret",
            "EVERSTEP_SOCKET": str(self.socket),
            "EVERSTEP_GENERATION": str(generation),
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
            "LOCAL_WORLD_SIZE": str(processes),
            "PYTHONPATH": RANK_PATH,
            "EVERSTEP_BENCH_AGENT": str(self.talk.pid),
        }


@contextlib.contextmanager
def bench_node(
    name: str, slots: int = 3, *, spare: bool = False, certificates: Path | None = None
) -> Iterator[BenchNode]:
    """Start a node with generation 1 of its job, or one that only waits as a spare of it.

    With a folder of ``certificates``, its copies travel inside TLS.
    """
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as folder:
        command = module_command("vault.node", folder, name, slots, certificates or "")
        with running(command) as process:
            talk = Talk(process)
            if not spare:
                talk.ask("start", 1)
            yield BenchNode(talk, name, Path(folder) / "agent.sock")


@contextlib.contextmanager
def bench_rank(
    module: str, environment: Mapping[str, str], *arguments: object, python: str | Path = ""
) -> Iterator[Talk]:
    """Start a training process of the benchmark."""
    command = [python or sys.executable, "-P", "-m", module, *map(str, arguments)]
    with running(command, environment) as process:
        yield Talk(process)


def plain_environment() -> Mapping[str, str]:
    """Return the variables of a process that no launcher of Everstep has started."""
    return os.environ | {"PYTHONPATH": RANK_PATH}
