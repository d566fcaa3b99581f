"""Surroundings of a controller: its process, as it is told to others, and who lives beside it."""

import os
import socket
import time
from pathlib import Path

from everstep_controller.journal.lease import Process
from everstep_controller.journal.postgres.lease_session import Surroundings

_PROC = Path("/proc")
# Of proc(5): the field of a process's start time, behind its name in brackets.
_START_FIELD = 19


def surroundings(proc: Path = _PROC) -> Surroundings:
    """Return those of this process."""
    return Surroundings(
        process=this_process(proc),
        monotonic_ns=time.monotonic_ns,
        sleep_s=time.sleep,
        lives=lambda one: lives(one, proc),
    )


def this_process(proc: Path = _PROC) -> Process:
    """Return this process."""
    pid = os.getpid()
    return Process(socket.gethostname(), _place(proc), pid, _started(pid, proc) or 0)


def lives(process: Process, proc: Path = _PROC) -> bool | None:
    """Return whether a process of this machine and its namespace lives; None for another's."""
    if not process.place or process.place != _place(proc):
        return None
    return _started(process.pid, proc) == process.started


def _place(proc: Path) -> str:
    """Return the boot and the namespace of processes; "" where the kernel does not say."""
    try:
        boot = (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink(proc / 'self/ns/pid')}"
    except OSError:
        return ""


def _started(pid: int, proc: Path) -> int | None:
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()
        # One that has ended, and that nobody has waited for yet, writes nothing any more.
        return None if fields[0] in ("Z", "X") else int(fields[_START_FIELD])
    except (OSError, IndexError, ValueError):
        return None
