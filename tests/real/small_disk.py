"""A small ext4 on a loop device that breaks in ways of a real one, and is repaired."""

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fakes.waits import wait_until
from real.sandbox import denied

_SCRIPT = (
    "mount -t tmpfs tmpfs /mnt && truncate -s 8M /mnt/disk && mkfs.ext4 -q /mnt/disk && "
    "mkdir /mnt/on && mount -o loop /mnt/disk /mnt/on"
)
# linux/fs.h: FS_IOC_SHUTDOWN; from then on every call is answered by EIO, as when a disk is pulled.
_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = (2).to_bytes(4, "little")


def denies_disks() -> str:
    """Return why no disk can be made; empty when one can."""
    return denied(_SCRIPT) if os.geteuid() == 0 else "needs root"


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


@dataclass(frozen=True)
class SmallDisk:
    """Its blocks are in a tmpfs: it has more of them than there is room for."""

    below: Path
    mount: Path

    def make(self) -> None:
        _run("mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", self.below)
        _run("truncate", "-s", "12M", self.below / "disk")
        # Without a journal: one that cannot be written would make the whole disk read-only.
        _run("mkfs.ext4", "-q", "-O", "^has_journal", self.below / "disk")
        self._mount()

    def remove(self) -> None:
        for place in (self.mount, self.below):
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("umount", "--lazy", place)

    def forbid(self) -> None:
        """Make it read-only, as a kernel does with a file system that has errors."""
        _run("mount", "-o", "remount,ro", self.mount)

    def allow(self) -> None:
        _run("mount", "-o", "remount,rw", self.mount)

    def pull(self) -> None:
        """Answer everything with EIO."""
        fd = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(fd)

    def plug_in(self) -> None:
        """Mount it anew, once nobody has a file of the old mount open: it would be that one."""
        _run("umount", "--lazy", self.mount)
        wait_until(lambda: not self._devices(), what="open")
        self._mount()

    def fill_below(self) -> None:
        """Leave no block for what it has promised: found out when a file is synchronized."""
        with contextlib.suppress(OSError), (self.below / "ballast").open("wb", 0) as ballast:
            while True:
                ballast.write(bytes(4096))

    def empty_below(self) -> None:
        (self.below / "ballast").unlink()

    def _devices(self) -> str:
        """Return the loop devices that have its blocks."""
        line = ["losetup", "--noheadings", "--associated", str(self.below / "disk")]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout

    def _mount(self) -> None:
        _run("mount", "-o", "loop,errors=continue", self.below / "disk", self.mount)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """Make one below a folder; remove it in the end."""
    disk = SmallDisk(folder / "below", folder / "disk")
    disk.below.mkdir()
    disk.mount.mkdir()
    try:
        disk.make()
        yield disk
    finally:
        disk.remove()
