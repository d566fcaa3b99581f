"""Waited file: the file that a process's system call is about, and the mount that it is on.

Nothing here asks the file system: one that hangs would hang whoever asks it, too.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# System calls about an open file, whose number is their first argument: read, write, pread64,
# pwrite64, readv, writev, fstat, lseek, getdents, fsync, fdatasync, getdents64, preadv, pwritev.
_OF_FILES = {
    "x86_64": frozenset({0, 1, 17, 18, 19, 20, 5, 8, 78, 74, 75, 217, 295, 296}),
    "aarch64": frozenset({63, 64, 67, 68, 65, 66, 80, 62, 61, 82, 83, 69, 70}),
}
_OCTAL = re.compile(r"\\([0-7]{3})")


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
