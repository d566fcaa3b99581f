"""Agent latency: from a fault to the finding, and from a killed probe process to the next one."""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from agent.cost import DRIVER, mapped
from agent.faults import watched
from agent.machines import fake_machine
from harness.processes import module_command, tree, with_paths
from harness.table import Row, row

# sysfs shows the interfaces of the namespace in which it was mounted.
_OWN_NETWORK = (
    *("unshare", "--net", "--mount", "sh", "-c"),
    'mount -t sysfs sysfs /sys && ip link set lo up && exec "$@"',
    "sh",
)
# What the agent reads of HCAs' counters, it reads in every fifth look.
_POLLS = {"ecc": ("GPU memory error counted", 1.0), "hca": ("HCA error counted", 5.0)}
_AT_ONCE = {
    "bare": "bare stream: finding sent → told",
    "xid": "kernel line with an Xid → finding",
    "link": "link goes down → finding",
}
_RESPAWNS = 10
_RESPAWN_PATIENCE_S = 20.0


def sample(kind: str, count: int) -> list[float]:
    """Return seconds from fault to finding, in their order of size."""
    command = module_command("agent.faults", kind, "--count", count)
    if kind == "link":
        command = [*_OWN_NETWORK, *command]
    done = subprocess.run(command, env=with_paths(), check=True, stdout=subprocess.PIPE)
    return sorted(json.loads(done.stdout))


def at(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that this share of all does not exceed."""
    return samples[min(len(samples) - 1, int(share * len(samples)))]


def rows_of(what: str, found: Sequence[float]) -> Iterator[Row]:
    """Yield the median and the 99th percentile."""
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        yield row(f"{what}: {name}", [at(found, share) * 1e3], "ms")


def polls(kind: str, what: str, interval_s: float, count: int) -> Iterator[Row]:
    """Yield how many polls of its source a counted error waits."""
    found = [seconds / interval_s for seconds in sample(kind, count)]
    unit = f"polls of {interval_s:g} s"
    yield row(f"{what} → finding: median", found, unit)
    yield row(f"{what} → finding: longest", found[-1:], unit)


def respawns() -> list[float]:
    """Return the seconds from the death of the probe's process until another has the driver."""
    with tempfile.TemporaryDirectory(prefix="everstep-bench-") as name:
        folder = Path(name)
        with fake_machine(folder) as fakes, watched(folder, fakes.machine):
            return [respawn(agent_of(folder)) for _ in range(_RESPAWNS)]


def agent_of(folder: Path) -> int:
    """Return the child of this process that was started with a folder's configuration."""
    for pid in tree(os.getpid())[1:]:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if str(folder / "agent.toml").encode() in words:
                return pid
    raise SystemExit("the agent is gone")


def respawn(agent: int) -> float:
    """Kill the process that has the driver loaded; return when another one has."""
    (victim,) = holders(agent)
    began = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    while time.monotonic() - began < _RESPAWN_PATIENCE_S:
        if holders(agent) - {victim}:
            took_s = time.monotonic() - began
            # It is asked before it is killed again.
            time.sleep(2.0)
            return took_s
        time.sleep(0.001)
    raise SystemExit("no new process came for the one that was killed")


def holders(agent: int) -> set[int]:
    """Return the agent's processes that have the driver's library mapped."""
    return {pid for pid in tree(agent) if mapped(pid, DRIVER)}


def measure(kind: str, count: int) -> Iterator[Row]:
    """Measure one kind of fault, or how soon a killed probe is replaced, and yield the rows."""
    if kind == "respawn":
        yield row("GPU probe killed → another has the driver", [s * 1e3 for s in respawns()], "ms")
    elif kind in _POLLS:
        yield from polls(kind, *_POLLS[kind], count)
    else:
        yield from rows_of(_AT_ONCE[kind], sample(kind, count))
