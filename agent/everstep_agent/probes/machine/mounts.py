"""Mount table: what is mounted where, and which mounts depend on a server or a process."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.probes.machine.kernel_files import KeptFile, text_of

# File systems that another machine serves: each may cease to answer at any time.
_NETWORK = frozenset(
    [
        "nfs",
        "nfs4",
        "lustre",
        "ceph",
        "cifs",
        "smb3",
        "smbfs",
        "gpfs",
        "beegfs",
        "glusterfs",
        "wekafs",
        "9p",
        "afs",
        "pvfs2",
        "orangefs",
        "virtiofs",
        "ncpfs",
        "panfs",
    ]
)
# File systems that a process of this node serves (FUSE); not those that only show what is local.
_LOCAL_FUSE = frozenset({"fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal", "fuse.snapfuse"})
# The kernel's file systems without a device that can fill up, which stops jobs.
_NAMED_MEMORY = frozenset({"/dev/shm", "/tmp", "/run"})
_USER = re.compile(r"(?:^|,)user_id=(\d{1,10})(?:,|$)", re.ASCII)
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table. ``device_id`` is the kernel's "major:minor"."""

    device_id: str
    root: str
    path: str
    filesystem: str
    source: str
    writable: bool
    # The user who mounted it and whose process serves it (FUSE); 0 for root.
    user: int = 0

    @property
    def is_remote(self) -> bool:
        """Return whether somebody else must answer before a call of it returns."""
        is_fuse = self.filesystem == "fuse" or self.filesystem.startswith("fuse.")
        if self.user:
            return False  # that user's affair: it hangs when that user wishes
        return self.filesystem in _NETWORK or (is_fuse and self.filesystem not in _LOCAL_FUSE)


class MountTable:
    """Table of /proc/self/mountinfo. Never touches what is mounted, so it cannot hang."""

    def __init__(self, proc: Path) -> None:
        self._table = KeptFile(proc / "self/mountinfo")
        self._filesystems = proc / "filesystems"

    def read(self) -> tuple[Mount, ...]:
        """Return all mounts, the topmost of each place. Raises OSError."""
        text = self._table.read().decode("utf-8", errors="replace")
        found = (parse_mount(line) for line in text.splitlines())
        # What is mounted later lies on top of what was mounted there before.
        return tuple({mount.path: mount for mount in found if mount is not None}.values())

    def disks(self, mounts: Iterable[Mount]) -> tuple[Mount, ...]:
        """Return the local disks among mounts, each device once."""
        text = text_of(self._filesystems) or ""
        no_device = {line.split()[1] for line in text.splitlines() if line.startswith("nodev\t")}
        # These have no device of their own in the table, and are disks nevertheless.
        no_device -= {"zfs", "btrfs", "bcachefs"}
        local = [
            mount
            for mount in mounts
            if not mount.is_remote
            and not mount.user
            and (mount.filesystem not in no_device or mount.path in _NAMED_MEMORY)
        ]
        return tuple(_each_device_once(local))


def parse_mount(line: str) -> Mount | None:
    """Return a line of mountinfo (Documentation/filesystems/proc.rst, 3.5); None for another."""
    fields = line.split(" ")
    if "-" not in fields[6:] or len(fields) < 10:
        return None
    filesystem, source, options = (*fields[fields.index("-", 6) + 1 :], "", "", "")[:3]
    return Mount(
        device_id=fields[2],
        root=_unescaped(fields[3]),
        path=_unescaped(fields[4]),
        filesystem=filesystem,
        source=_unescaped(source),
        # The file system's own options, not the mount's: a service manager shows a confined agent
        # every mount read-only.
        writable="ro" not in options.split(","),
        user=_user_of(options),
    )


def _user_of(options: str) -> int:
    """Return who mounted a FUSE file system: fusermount tells the kernel, which lets nobody lie."""
    found = _USER.search(options)
    return int(found[1]) if found else 0


def _unescaped(text: str) -> str:
    """Return a path whose spaces, tabs and line ends the kernel has written as octal numbers."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8) & 0xFF), text)


def _each_device_once(mounts: Sequence[Mount]) -> Iterable[Mount]:
    """Return the mount of each device's top folder; parts of it mounted elsewhere are no disks."""
    found: dict[str, Mount] = {}
    for mount in mounts:
        known = found.get(mount.device_id)
        if known is None or (known.root != "/" and mount.root == "/"):
            found[mount.device_id] = mount
    return found.values()


def writable_by_table(fstab: Path) -> frozenset[str]:
    """Return the mount points that a file like /etc/fstab mounts writable."""
    found = set()
    for line in (text_of(fstab) or "").splitlines():
        fields = line.partition("#")[0].split()
        if len(fields) >= 4 and fields[1].startswith("/") and "ro" not in fields[3].split(","):
            found.add(_unescaped(fields[1]))
    return frozenset(found)
