"""Host probe: load, memory, disks and traffic, through psutil."""

import os
from pathlib import Path

import psutil

from everstep_agent.detectors.host import DiskReading, HostReading


class HostProbe:
    """Reads the whole node's counters and this process's own cost."""

    def __init__(self) -> None:
        self._self = psutil.Process()
        # The first call only sets the point from which the next one counts.
        psutil.cpu_percent(interval=None)

    def read(self) -> HostReading:
        """Read once. Raises OSError."""
        memory = psutil.virtual_memory()
        disks = psutil.disk_io_counters(nowrap=True)
        network = psutil.net_io_counters(nowrap=True)
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


def read_disks() -> tuple[DiskReading, ...]:
    """Return the mounted disks, each device once. Raises OSError. May block on a dying disk."""
    found: dict[str, DiskReading] = {}
    for part in psutil.disk_partitions(all=False):
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
