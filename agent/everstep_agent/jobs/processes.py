"""Knows processes for certain: a pid together with when it started, watched through a pidfd."""

import asyncio
import os
import signal
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a Unix socket, by the kernel's word."""

    pid: int
    uid: int


def peer_of(connection: socket.socket) -> Peer:
    """Return who connected. Raises OSError."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return Peer(pid, uid)


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


def alive(process: ProcessIdentity) -> bool:
    """Return whether the process still runs; one that waits to be reaped does not."""
    return identify(process.pid) == process


def kill(process: ProcessIdentity) -> None:
    """Kill a process, and no other that got its pid since. Raises PermissionError."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        if alive(process):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
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
