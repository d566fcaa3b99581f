"""Process identity: a pid and its start time, so that a reused pid is never taken for it."""

import asyncio
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

# A launcher starts its ranks itself, or through a wrapper or two.
_ANCESTORS_MAX = 8


def umask_of(pid: int, proc: Path = Path("/proc")) -> int:
    """Return the umask of a process; one that keeps others out where it cannot be read."""
    try:
        status = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^Umask:\s*([0-7]+)$", status, re.MULTILINE)
    except OSError:
        return 0o077
    return int(found[1], 8) if found else 0o077


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of this boot. ``start_ticks`` tells it from a later one with the same pid."""

    pid: int
    start_ticks: int


def identify(pid: int, proc: Path = Path("/proc")) -> ProcessIdentity | None:
    """Return the identity of a running process, None when there is none."""
    try:
        stat = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # Fields are counted behind the name, which may contain anything: proc_pid_stat(5).
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else ProcessIdentity(pid, int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def descends(pid: int, ancestor: int, uid: int, proc: Path = Path("/proc")) -> bool:
    """Return whether a process of this user is another one, or was started by it.

    A number that a launcher names may be anybody's: it lies, or counts in a namespace of its own.
    """
    for _ in range(_ANCESTORS_MAX):
        try:
            status = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return False
        found = re.search(r"^PPid:\s*(\d+)$.*?^Uid:\s*(\d+)\s", status, re.MULTILINE | re.DOTALL)
        if found is None or int(found[2]) != uid:
            return False
        if pid == ancestor:
            return True
        pid = int(found[1])
    return False


def kernel_wait(pid: int, proc: Path = Path("/proc")) -> str | None:
    """Return the kernel function in which a thread of a process waits where no signal reaches it.

    "" where the kernel does not tell which; None where no thread waits so (state D).
    """
    for task in (proc / str(pid) / "task").glob("[0-9]*"):
        try:
            stat = (task / "stat").read_text(encoding="utf-8", errors="replace")
            if stat.rpartition(")")[2].split()[:1] != ["D"]:
                continue
            where = (task / "wchan").read_text(encoding="utf-8", errors="replace").strip("\0\n ")
        except OSError:  # it has ended
            continue
        return "" if where == "0" else where
    return None


def alive(process: ProcessIdentity) -> bool:
    """Return whether the process still runs; one that waits to be reaped does not."""
    return identify(process.pid) == process


def kill(process: ProcessIdentity) -> None:
    """Kill a process, as `send_signal` does. Raises PermissionError."""
    send_signal(process, signal.SIGKILL)


def send_signal(process: ProcessIdentity, number: int) -> None:
    """Signal a process, and no other that got its pid since. Raises PermissionError."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if alive(process):
            signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


async def wait_dead(process: ProcessIdentity) -> None:
    """Return when the process has ended."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    try:
        if not alive(process):
            return
        loop.add_reader(pidfd, ended.set)
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
