"""Kernel log choice: the kernel's own log device, or a file that a syslog daemon writes."""

import stat
from pathlib import Path

from everstep_agent.probes.kernel_device import DeviceLog
from everstep_agent.probes.kernel_file import FileLog
from everstep_agent.probes.kernel_log import KernelLog, Position


def kernel_log(path: Path, boot_id: str, position: Position) -> KernelLog:
    """Return the log at ``path``, to be read from a position on."""
    if path.exists() and stat.S_ISCHR(path.stat().st_mode):
        return DeviceLog(path, boot_id, position)
    return FileLog(path, position)
