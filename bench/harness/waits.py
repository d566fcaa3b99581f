"""Waits of benchmarks: until a process or the machine is quiet, or something is there."""

import time
from pathlib import Path

from harness.processes import START_PATIENCE_S, cpu_s

_QUIET_S = 0.1
_QUIET_SHARE = 0.05
_IDLE_SHARE = 0.8


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


def until_there(path: Path, patience_s: float = START_PATIENCE_S) -> None:
    """Return when a path exists. Raises SystemExit after a while."""
    deadline = time.monotonic() + patience_s
    while not path.exists():
        if time.monotonic() > deadline:
            raise SystemExit(f"{path} did not appear")
        time.sleep(0.05)
