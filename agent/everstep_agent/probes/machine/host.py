"""Host probes: load, memory and traffic; limits of the kernel, and their use."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from everstep_agent.detectors.host.usage import HostReading, KernelUsage, Usage
from everstep_agent.probes.machine import proc_tables
from everstep_agent.probes.machine.kernel_files import KeptFile, names_in, number_in, text_of
from everstep_agent.probes.machine.proc_tables import counter_in

T = TypeVar("T")

_MEMORY_LINES = (b"MemTotal", b"MemAvailable", b"SwapTotal", b"SwapFree")
# Disks and interfaces come and go rarely; listing them costs more than reading all counters.
_LOOKS_PER_LISTING = 60
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


class HostProbe:
    """Probe of the node's counters and the cost of one process: this one, or ``pid``."""

    def __init__(
        self, proc: Path = Path("/proc"), sysfs: Path = Path("/sys"), pid: int | None = None
    ) -> None:
        own = proc / ("self" if pid is None else str(pid))
        self._sysfs = sysfs
        self._stat = KeptFile(proc / "stat", at_once=True)
        self._meminfo = KeptFile(proc / "meminfo", at_once=True)
        self._loadavg = KeptFile(proc / "loadavg", at_once=True)
        self._diskstats = KeptFile(proc / "diskstats")
        self._network = KeptFile(proc / "net/dev")
        self._process = KeptFile(own / "stat", at_once=True)
        self._ticks = (0, 0)
        self._disks: frozenset[bytes] = frozenset()
        self._interfaces: frozenset[bytes] = frozenset()
        self._looks = 0

    def read(self) -> HostReading:
        """Read once. Raises OSError, and ValueError for what no kernel writes."""
        if self._looks % _LOOKS_PER_LISTING == 0:
            self._disks = _hardware(self._sysfs / "block")
            self._interfaces = _hardware(self._sysfs / "class/net")
        self._looks += 1
        load_1m, load_5m, tasks = proc_tables.load(self._loadavg.read())
        memory = proc_tables.memory_bytes(self._meminfo.read(), _MEMORY_LINES)
        disks = _optional(
            lambda: proc_tables.disk_traffic(self._diskstats.read(), self._disks)
        ) or (None, None)
        network = _optional(
            lambda: proc_tables.network_traffic(self._network.read(), self._interfaces)
        ) or (None, None, None)
        _, own = proc_tables.process_fields(self._process.read())
        return HostReading(
            cpu_busy_ratio=self._busy(),
            load_1m=load_1m,
            load_5m=load_5m,
            tasks=tasks,
            memory_total_bytes=memory.get(b"MemTotal", 0),
            memory_available_bytes=memory.get(b"MemAvailable", 0),
            swap_used_bytes=memory.get(b"SwapTotal", 0) - memory.get(b"SwapFree", 0),
            disk_read_bytes=disks[0],
            disk_written_bytes=disks[1],
            network_received_bytes=network[0],
            network_sent_bytes=network[1],
            network_errors=network[2],
            # Behind the name: state is the first, user time the 12th, resident pages the 22nd.
            agent_cpu_s=(int(own[11]) + int(own[12])) / _TICKS_PER_S,
            agent_memory_bytes=int(own[21]) * _PAGE_BYTES,
        )

    def _busy(self) -> float:
        """Return the share of CPU time since the last look; at the first one, since boot."""
        before, self._ticks = self._ticks, proc_tables.cpu_ticks(self._stat.read())
        passed, idle = (now - then for now, then in zip(self._ticks, before, strict=True))
        return min(1.0, max(0.0, 1 - idle / passed)) if passed > 0 else 0.0


def _hardware(folder: Path) -> frozenset[bytes]:
    """Return the entries with a device behind them: what lies upon them would be counted twice."""
    names = names_in(folder)
    devices = [name for name in names if (folder / name / "device").exists()]
    # Some virtual machines and containers have virtual devices only.
    chosen = devices or [name for name in names if not name.startswith(("lo", "ram", "zram"))]
    return frozenset(os.fsencode(name) for name in chosen)


def _optional(read: Callable[[], T]) -> T | None:
    """Return what can be read: a container may hide one file of /proc and not the others."""
    try:
        return read()
    except (OSError, ValueError):
        return None


class UsageProbe:
    """Probe of the kernel's own counts of what it hands out."""

    def __init__(self, proc: Path) -> None:
        self._sys = proc / "sys"
        self._vmstat = KeptFile(proc / "vmstat")
        # The kernel works it out from the wall clock, which may be set meanwhile: asked once.
        self._booted_at_s = _counter(KeptFile(proc / "stat"), b"btime")

    def read(self) -> KernelUsage:
        """Read once. What the kernel does not tell is None."""
        limits = [
            limit
            for name in ("pid_max", "threads-max")
            if (limit := number_in(self._sys / "kernel" / name))
        ]
        return KernelUsage(
            cpus=os.cpu_count() or 1,
            open_files=self._open_files(),
            tasks_max=min(limits, default=None),
            connections=self._connections(),
            oom_kills=_counter(self._vmstat, b"oom_kill"),
            booted_at_s=self._booted_at_s,
        )

    def _open_files(self) -> Usage | None:
        # "allocated, unused (always 0 since 2.6), limit"
        fields = (text_of(self._sys / "fs/file-nr") or "").split()
        if len(fields) != 3 or not all(field.isdecimal() for field in fields):
            return None
        # Without a limit set, it is the largest number there is: more digits than int() likes.
        return Usage(int(fields[0][:19]), int(fields[2][:19]))

    def _connections(self) -> Usage | None:
        folder = self._sys / "net/netfilter"
        count, limit = (number_in(folder / f"nf_conntrack_{name}") for name in ("count", "max"))
        return None if count is None or limit is None else Usage(count, limit)


def _counter(table: KeptFile, name: bytes) -> int | None:
    try:
        return counter_in(table.read(), name)
    except (OSError, ValueError):
        return None
