"""Nodes and ranks of the vault benchmarks: each started in a process of its own."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.processes import BENCH, ROOT, cpu_s, module_command, running

from everstep.launch.memcpy_tuning import memcpy_variables

# What a rank needs of Everstep: it runs in an environment in which nothing of it is installed.
RANK_PATH = os.pathsep.join(map(str, (ROOT / "trainer", ROOT / "common", BENCH)))
_QUIET_S = 0.1
_QUIET_SHARE = 0.05
_IDLE_SHARE = 0.8


class Talk:
    """Process that answers each line with one of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid
        self.hear()  # "ready"

    def ask(self, *words: object) -> object:
        """Return the answer to one line."""
        assert self._process.stdin is not None
        try:
            print(*words, file=self._process.stdin, flush=True)
        except BrokenPipeError as error:
            raise self._ended() from error
        return self.hear()

    def seconds(self, *words: object) -> float:
        """Return an answer that is a number."""
        answer = self.ask(*words)
        assert isinstance(answer, float), answer
        return answer

    def hear(self) -> object:
        """Return the next answer. Raises SystemExit when the process has ended."""
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            # Libraries of the peers print, too.
            with contextlib.suppress(ValueError):
                answer: object = json.loads(line)
                return answer
        raise self._ended()

    def _ended(self) -> SystemExit:
        return SystemExit(f"{self._process.args!r} ended early: {self._process.wait(10)}")


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


def until_quiet(pid: int, patience_s: float = 20.0) -> None:
    """Return when a process does nothing more: the agent has hashed what it was given."""
    deadline = time.monotonic() + patience_s
    before = cpu_s(pid)
    while time.monotonic() < deadline:
        time.sleep(_QUIET_S)
        now = cpu_s(pid)
        if now - before < _QUIET_S * _QUIET_SHARE:
            return
        before = now


def until_idle(patience_s: float = 2.0) -> None:
    """Return when the processors are idle, or after a while: others may work on this machine."""
    deadline = time.monotonic() + patience_s
    idle, total = _processors()
    while time.monotonic() < deadline:
        time.sleep(_QUIET_S)
        idle_now, total_now = _processors()
        if idle_now - idle >= _IDLE_SHARE * (total_now - total):
            return
        idle, total = idle_now, total_now


def _processors() -> tuple[int, int]:
    """Return the ticks that all processors were idle, and all ticks."""
    with open("/proc/stat") as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def need_memory(size_bytes: int) -> None:
    """Raise SystemExit where there is not so much free: others on this machine would be killed."""
    with open("/proc/meminfo") as file:
        found = dict(line.split(":") for line in file)
    available = int(found["MemAvailable"].split()[0]) * 1024
    if available < size_bytes:
        raise SystemExit(f"{size_bytes >> 30} GiB of memory are needed, {available >> 30} are free")


def until_there(path: Path, patience_s: float = 20.0) -> None:
    """Return when a path exists. Raises SystemExit after a while."""
    deadline = time.monotonic() + patience_s
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"{path} did not appear")
        time.sleep(0.05)
