"""Storage probe: local disks, NVMe controllers and md arrays; it may block on a dying disk."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from everstep_agent.detectors.host.disks import DiskReading, StorageReading
from everstep_agent.probes.machine.kernel_files import names_in, number_in, text_of
from everstep_agent.probes.machine.mounts import Mount, MountTable, writable_by_table


class StorageProbe:
    """Probe of what is mounted from local disks, and of what drivers say of the disks."""

    def __init__(
        self,
        proc: Path,
        sysfs: Path,
        fstab: Path = Path("/etc/fstab"),
        statvfs: Callable[[str], os.statvfs_result] = os.statvfs,
    ) -> None:
        self._table = MountTable(proc)
        self._sysfs = sysfs
        self._fstab = fstab
        self._statvfs = statvfs

    def read(self) -> StorageReading:
        """Read once. Raises OSError when the table of mounts cannot be read."""
        mounts = self._table.read()
        return StorageReading(
            disks=tuple(self._disks(self._table.disks(mounts))),
            mounts=frozenset(mount.path for mount in mounts),
            writable_by_table=writable_by_table(self._fstab),
            nvme=tuple(self._nvme()),
            arrays=tuple(self._arrays()),
        )

    def _disks(self, mounts: tuple[Mount, ...]) -> Iterator[DiskReading]:
        for mount in mounts:
            try:
                usage = self._statvfs(mount.path)
            except OSError:
                # Hidden under another mount, or not for this user to see.
                continue
            if usage.f_blocks == 0:
                continue
            yield DiskReading(
                device=mount.source,
                mount=mount.path,
                filesystem=mount.filesystem,
                size_bytes=usage.f_blocks * usage.f_frsize,
                free_bytes=usage.f_bavail * usage.f_frsize,
                writable=mount.writable,
                inodes=usage.f_files,
                inodes_free=usage.f_ffree,
                kernel_name=self._kernel_name(mount.device_id),
            )

    def _kernel_name(self, device_id: str) -> str:
        try:
            return Path(os.readlink(self._sysfs / "dev/block" / device_id)).name
        except OSError:
            return ""

    def _nvme(self) -> Iterator[tuple[str, str]]:
        folder = self._sysfs / "class/nvme"
        for name in names_in(folder):
            if state := text_of(folder / name / "state"):
                yield name, state

    def _arrays(self) -> Iterator[tuple[str, int]]:
        folder = self._sysfs / "block"
        for name in names_in(folder):
            # Only arrays with redundancy have the file.
            missing = number_in(folder / name / "md/degraded") if name.startswith("md") else None
            if missing is not None:
                yield name, missing
