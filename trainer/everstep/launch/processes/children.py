"""Descendants of the launcher: found, adopted and reaped, so that none outlives its generation."""

import contextlib
import ctypes
import os
import signal
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> bool:
    """Become the parent of descendants whose parent dies; return whether the kernel agreed."""
    return bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def children(proc: Path = Path("/proc")) -> set[int]:
    """Return the launcher's children, adopted ones and zombies among them."""
    lists = list(proc.glob("self/task/*/children"))
    if not lists:  # a kernel without CONFIG_PROC_CHILDREN
        return _children_by_parent(proc, os.getpid())
    found: set[int] = set()
    for path in lists:
        with contextlib.suppress(OSError):  # a thread that ended
            found.update(map(int, path.read_text(encoding="ascii").split()))
    return found


def _children_by_parent(proc: Path, parent: int) -> set[int]:
    found = set()
    for path in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that ended
            # proc(5): pid (comm) state ppid; a command's name may hold blanks and brackets.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[1]) == parent:
                found.add(int(path.parent.name))
    return found


def reap(pid: int) -> bool:
    """Return whether this child is gone now; it must not be one that a Popen waits for."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def kill_group(group: int, number: signal.Signals) -> None:
    """Send a signal to a process group that may be gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
