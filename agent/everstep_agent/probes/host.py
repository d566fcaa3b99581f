"""Host probe: load, memory, disks and traffic, through psutil."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from everstep_agent.detectors.host import DiskReading, HostReading

T = TypeVar("T")

# Besides OSError: psutil raises its own, and RuntimeError (of which NotImplementedError is one) or
# ValueError for files of /proc that are missing or that it does not understand.
_PSUTIL_ERRORS = (psutil.Error, RuntimeError, ValueError)


class ReadError(OSError):
    """The kernel's counters could not be read; one sentence says why."""


class HostProbe:
    """Reads the whole node's counters and the cost of one process, this one."""

    def __init__(self, process: psutil.Process | None = None) -> None:
        self._self = process or psutil.Process()
        # The first call only sets the point from which the next one counts.
        psutil.cpu_percent(interval=None)

    def read(self) -> HostReading:
        """Read once. Raises OSError."""
        try:
            return self._read()
        except _PSUTIL_ERRORS as error:
            raise ReadError(f"{type(error).__name__}: {error}") from error

    def _read(self) -> HostReading:
        memory = psutil.virtual_memory()
        disks = _optional(lambda: psutil.disk_io_counters(nowrap=True))
        network = _optional(lambda: psutil.net_io_counters(nowrap=True))
        cpu = self._self.cpu_times()
        return HostReading(
            cpu_busy_ratio=psutil.cpu_percent(interval=None) / 100,
            load_1m=os.getloadavg()[0],
            memory_total_bytes=memory.total,
            memory_available_bytes=memory.available,
            disk_read_bytes=disks.read_bytes if disks else None,
            disk_written_bytes=disks.write_bytes if disks else None,
            network_received_bytes=network.bytes_recv if network else None,
            network_sent_bytes=network.bytes_sent if network else None,
            network_errors=network.errin + network.errout if network else None,
            agent_cpu_s=cpu.user + cpu.system,
            agent_memory_bytes=self._self.memory_info().rss,
        )


def _optional(read: Callable[[], T]) -> T | None:
    """Return what can be read: a container may hide one file of /proc and not the others."""
    try:
        return read()
    except (OSError, *_PSUTIL_ERRORS):
        return None


def read_disks() -> tuple[DiskReading, ...]:
    """Return the mounted disks, each device once. Raises OSError. May block on a dying disk."""
    try:
        parts = psutil.disk_partitions(all=False)
    except _PSUTIL_ERRORS as error:
        raise ReadError(f"{type(error).__name__}: {error}") from error
    found: dict[str, DiskReading] = {}
    for part in parts:
        # A file mounted over another (containers do that) is not a disk of its own.
        if part.device in found or not Path(part.mountpoint).is_dir():
            continue
        try:
            usage = os.statvfs(part.mountpoint)
        except OSError:
            continue
        found[part.device] = DiskReading(
            device=part.device,
            mount=part.mountpoint,
            filesystem=part.fstype,
            size_bytes=usage.f_blocks * usage.f_frsize,
            free_bytes=usage.f_bavail * usage.f_frsize,
            writable="rw" in part.opts.split(","),
        )
    return tuple(found.values())
