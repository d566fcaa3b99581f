"""What an agent costs its node, beside the exporter that nodes run anyway (node-exporter).

The agent samples this machine once a second and streams to a controller. Both are scraped once a
second in the windows that say so. Its helper processes count; memory is proportional (PSS).
"""

import contextlib
import shutil
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemons import agent_command, controller_command
from processes import cpu_s, free_port, memory_bytes, running, wait_for_port
from table import Row, arguments, row, show

# What a start costs (imports, the first inventory) is not the steady state.
SETTLE_S = 10.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process tree used, one value per window."""

    cpu_percent: list[float] = field(default_factory=list)
    memory_mib: list[float] = field(default_factory=list)


@contextlib.contextmanager
def scraped(port: int) -> Iterator[None]:
    """Fetch /metrics once a second meanwhile."""
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1.0):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
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
        began, cpu_began = time.monotonic(), cpu_s(pid)
        time.sleep(seconds)
        cost.cpu_percent.append((cpu_s(pid) - cpu_began) / (time.monotonic() - began) * 100)
        cost.memory_mib.append(memory_bytes(pid) / 2**20)
    return cost


def measure_agent(seconds: float, repeats: int) -> tuple[Cost, Cost]:
    """Return what the agent costs on its own, and what it costs scraped once a second."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as name:
        folder, controller_port, metrics_port = Path(name), free_port(), free_port()
        with running(controller_command(folder, controller_port)) as controller:
            wait_for_port(controller_port, controller)
            with running(agent_command(folder, controller_port, metrics_port)) as agent:
                wait_for_port(metrics_port, agent)
                time.sleep(SETTLE_S)
                alone = windows(agent.pid, seconds, repeats)
                with scraped(metrics_port):
                    return alone, windows(agent.pid, seconds, repeats)


def measure_exporter(seconds: float, repeats: int) -> Cost:
    """Return what the exporter costs, scraped once a second. Raises SystemExit without one."""
    program = shutil.which("prometheus-node-exporter")
    if program is None:
        raise SystemExit("prometheus-node-exporter is not installed (apt has it)")
    port = free_port()
    with running([program, f"--web.listen-address=127.0.0.1:{port}"]) as exporter:
        wait_for_port(port, exporter)
        with scraped(port):
            time.sleep(SETTLE_S)
            return windows(exporter.pid, seconds, repeats)


def compare(seconds: float, repeats: int) -> Iterator[Row]:
    """Measure both and yield the rows."""
    exporter = measure_exporter(seconds, repeats)
    alone, both = measure_agent(seconds, repeats)
    peer = row("node-exporter, scraped at 1 Hz: CPU", exporter.cpu_percent, "% of a core")
    yield peer
    yield row("agent, sampling at 1 Hz: CPU", alone.cpu_percent, "% of a core", peer)
    yield row("agent, the same and scraped at 1 Hz: CPU", both.cpu_percent, "% of a core", peer)
    peer = row("node-exporter: memory", exporter.memory_mib, "MiB")
    yield peer
    yield row("agent with its helpers: memory", both.memory_mib, "MiB", peer)


def main() -> None:
    """Measure and print."""
    given = arguments(__doc__ or "").parse_args()
    show(list(compare(given.seconds, given.repeats)), given.json)


if __name__ == "__main__":
    main()
