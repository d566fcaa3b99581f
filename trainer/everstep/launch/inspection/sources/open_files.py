"""Open files of a rank's process: the accelerators among them, and the one that it waits for.

Nothing here asks a file system: one that hangs would hang whoever asks it, too.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# Files of /dev that stand for an accelerator, of any vendor: NVIDIA, AMD and Intel (render nodes),
# Habana and others of the kernel's own class, Ascend, Cambricon, Kunlunxin, Hygon.
_ACCELERATOR = re.compile(
    r"/dev/(?:nvidia\d+|dri/renderD\d+|accel/accel\d+|davinci\d+|cambricon_dev\d+|xpu\d+|hcu\d+)$"
)
_NVIDIA = re.compile(r"/dev/nvidia(\d+)$")
_MINOR = re.compile(r"^Device Minor:\s*(\d+)", re.MULTILINE)
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_FILES_MAX = 4096
_DEVICES_MAX = 64
# System calls about an open file, whose number is their first argument: read, write, pread64,
# pwrite64, readv, writev, fstat, lseek, getdents, fsync, fdatasync, getdents64, preadv, pwritev.
_OF_FILES = {
    "x86_64": frozenset({0, 1, 17, 18, 19, 20, 5, 8, 78, 74, 75, 217, 295, 296}),
    "aarch64": frozenset({63, 64, 67, 68, 65, 66, 80, 62, 61, 82, 83, 69, 70}),
}
_OCTAL = re.compile(r"\\([0-7]{3})")


def open_devices(
    pid: int, proc: Path = Path("/proc"), sys: Path = Path("/sys")
) -> tuple[str, ...] | None:
    """Return the PCI addresses of accelerators that a process has open; () where it has none.

    None where that cannot be told: its files cannot be listed, or one of them has no address.
    """
    try:
        files = {file for file in _files(proc / str(pid) / "fd") if _ACCELERATOR.match(file[0])}
    except OSError:
        return None
    found = {address_of(path, number, proc, sys) for path, number in files}
    return None if "" in found else tuple(sorted(found))[:_DEVICES_MAX]


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield what the open character devices are called, with their numbers. Raises OSError."""
    for name in os.listdir(folder)[:_FILES_MAX]:
        with suppress(OSError):
            path = os.readlink(folder / name)
            # Only of devices: a file of a file system that hangs would be waited for.
            if path.startswith("/dev/"):
                found = os.stat(folder / name)
                if stat.S_ISCHR(found.st_mode):
                    yield path, found.st_rdev


def address_of(path: str, number: int, proc: Path, sys: Path) -> str:
    """Return the PCI address of a device's file; "" where nobody tells it."""
    nvidia = _NVIDIA.match(path)
    if nvidia is not None:
        return _of_nvidia(int(nvidia[1]), proc)
    device = sys / "dev/char" / f"{os.major(number)}:{os.minor(number)}" / "device"
    address = device.resolve().name
    return address if _PCI.fullmatch(address) else ""


def _of_nvidia(minor: int, proc: Path) -> str:
    with suppress(OSError):
        for gpu in (proc / "driver/nvidia/gpus").iterdir():
            told = _MINOR.search((gpu / "information").read_text(errors="replace"))
            if told is not None and int(told[1]) == minor:
                return gpu.name.lower()
    return ""


class WaitedFile(NamedTuple):
    """A file, and its mount as "nfs4 server:/export at /data"; "" where nobody can tell."""

    path: str = ""
    mount: str = ""


def waited_file(
    pid: int, syscall: str, proc: Path = Path("/proc"), machine: str = os.uname().machine
) -> WaitedFile:
    """Return which file a process waits for, by its system call as /proc tells that."""
    words = syscall.split()
    with suppress(OSError, ValueError, IndexError):
        if int(words[0]) in _OF_FILES.get(machine, ()):
            path = os.readlink(proc / str(pid) / "fd" / str(int(words[1], 16)))
            if path.startswith("/"):
                return WaitedFile(path, _mount_of(path, proc / str(pid) / "mountinfo"))
    return WaitedFile()


def _mount_of(path: str, mounts: Path) -> str:
    """Return the mount that a path is on. Raises OSError."""
    best, told = "", ""
    for line in mounts.read_text(errors="replace").splitlines():
        # proc_pid_mountinfo(5): the place is the fifth word; kind and source follow a dash.
        words, _, rest = line.partition(" - ")
        place, (kind, source) = _plain(words.split()[4]), rest.split()[:2]
        inside = place == "/" or path == place or path.startswith(f"{place}/")
        if inside and len(place) >= len(best):
            best, told = place, f"{kind} {_plain(source)} at {place}"
    return told


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
