"""Cost of an agent on its node, beside node-exporter."""

import contextlib
import shutil
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.machines import Machine, fake_machine, this_machine
from harness.daemons import agent_command, controller_command
from harness.processes import (
    cpu_s,
    free_port,
    memory_alone_bytes,
    memory_bytes,
    running,
    tree,
    wait_for_port,
)
from harness.table import Row, row

# What a start costs (imports, the first inventory) is not the steady state.
SETTLE_S = 12.0
# Names under which the NVIDIA driver's library and CUDA's are mapped.
DRIVER, CUDA = "libnvidia-ml", "libcuda"
_EXPORTER = "prometheus-node-exporter"
_FAKES = "8 GPUs, 8 HCAs"
_EXPORTER_SCRAPED = "node-exporter, scraped at 1 Hz"


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU and memory of a process tree, one value per window."""

    cpu_percent: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)
    alone_mib: list[float] = field(default_factory=list)

    def cpu_row(self, name: str, peer: Row | None = None) -> Row:
        """Return what it used of a core."""
        return row(f"{name}: CPU", self.cpu_percent, "% of a core", peer)

    def memory_row(self, name: str, peer: Row | None = None) -> Row:
        """Return what memory it took."""
        return row(f"{name}: memory", self.memory_mib, "MiB", peer)


@contextlib.contextmanager
def scraped(port: int) -> Iterator[None]:
    """Fetch /metrics once a second meanwhile."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1.0):
            url = f"http://127.0.0.1:{port}/metrics"
            with urllib.request.urlopen(url, timeout=5) as answer:
                answer.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def windows(pid: int, seconds: float, repeats: int) -> Cost:
    """Read what a process tree uses."""
    cost = Cost()
    for _ in range(repeats):
        began, before = time.monotonic(), cpu_s(pid)
        time.sleep(seconds)
        cost.cpu_percent.append((cpu_s(pid) - before) / (time.monotonic() - began) * 100)
        cost.memory_mib.append(memory_bytes(pid) / 2**20)
        cost.alone_mib.append(memory_alone_bytes(pid) / 2**20)
    return cost


@dataclass(frozen=True, slots=True)
class Windows:
    """Measuring windows: how long each is, and how many there are."""

    seconds: float
    repeats: int

    def of(self, pid: int) -> Cost:
        """Return what it uses once it has settled."""
        time.sleep(SETTLE_S)
        return windows(pid, self.seconds, self.repeats)


def exporter_cost(look: Windows) -> Cost:
    """Measure node-exporter, scraped. Raises SystemExit without one."""
    program = shutil.which(_EXPORTER)
    if program is None:
        raise SystemExit(f"{_EXPORTER} is not installed (apt has it)")
    port = free_port()
    with running([program, f"--web.listen-address=127.0.0.1:{port}"]) as exporter:
        wait_for_port(port, exporter)
        with scraped(port):
            return look.of(exporter.pid)


@dataclass(frozen=True, slots=True)
class AgentCost:
    """Cost of an agent, alone and scraped, and how many of its processes had which library."""

    alone: Cost
    scraped: Cost
    loaded: tuple[int, int]


def agent_cost(folder: Path, machine: Machine, look: Windows) -> AgentCost:
    """Measure an agent with a controller of its own."""
    folder.mkdir()
    controller_port, port = free_port(), free_port()
    command = agent_command(folder, controller_port, port, machine.config)
    with (
        running(controller_command(folder, controller_port)) as controller,
        running(command, machine.environment) as agent,
    ):
        wait_for_port(controller_port, controller)
        wait_for_port(port, agent)
        alone = look.of(agent.pid)
        with scraped(port):
            asked = windows(agent.pid, look.seconds, look.repeats)
        members = tree(agent.pid)
        # A CUDA context takes memory of the GPU, and libcuda.
        drivers, cuda = (sum(mapped(pid, name) for pid in members) for name in (DRIVER, CUDA))
    return AgentCost(alone, asked, (drivers, cuda))


def mapped(pid: int, library: str) -> bool:
    """Return whether a process has a library mapped."""
    try:
        return library in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return False


def measure(seconds: float, repeats: int) -> Iterator[Row]:
    """Measure one after another, for none to warm or cool the caches of another; yield the rows."""
    look = Windows(seconds, repeats)
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as name:
        folder = Path(name)
        peer = exporter_cost(look)
        yield from (peer.cpu_row(_EXPORTER_SCRAPED), peer.memory_row("node-exporter"))
        with fake_machine(folder) as fakes:
            faked = agent_cost(folder / "faked", fakes.machine, look)
        yield from _rows(f"agent, {_FAKES}", faked, peer)
        alone = row(f"agent, {_FAKES}: memory, alone on its node", faked.alone.alone_mib, "MiB")
        yield alone
        for library, found in zip(("NVML", "CUDA"), faked.loaded, strict=True):
            yield row(f"processes of the agent with {library} loaded", [found], "processes")
        plain = agent_cost(folder / "plain", this_machine(), look)
        yield from _rows("agent, this machine", plain, peer)


def _rows(name: str, found: AgentCost, peer: Cost) -> Iterator[Row]:
    yield found.alone.cpu_row(name, peer.cpu_row(_EXPORTER_SCRAPED))
    yield found.scraped.cpu_row(f"{name}, scraped at 1 Hz", peer.cpu_row(_EXPORTER_SCRAPED))
    yield found.alone.memory_row(name, peer.memory_row("node-exporter"))
