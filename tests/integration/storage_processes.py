"""Storage processes of an agent that runs in the test itself: children of the test's process."""

import asyncio
import contextlib
from pathlib import Path

from fakes.waits import eventually

_PROGRAM = b"storage/worker/main.py"
_PATIENCE_S = 20.0


def children() -> set[str]:
    """Return every process of this one that runs, or is not reaped."""
    found: set[str] = set()
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # a thread that has ended since it was listed
            found.update(listed.read_text().split())
    return found


async def storage_processes_end() -> None:
    """Wait for those that were told to end: only this loop reaps them, and a test ends it.

    On a busy machine a process that is killed dies seconds later.
    """
    for _ in range(3):  # turns in which the loop reaps those that are dead
        await asyncio.sleep(0)
    left = {pid for pid in children() if _PROGRAM in _read(pid, "cmdline")}
    # One that a test has left is told by Python, as a warning.
    with contextlib.suppress(AssertionError):
        await eventually(lambda: not any(map(_is_left, left)), _PATIENCE_S)


def _is_left(pid: str) -> bool:
    """Return whether a process is there; one that the kernel holds in a call cannot end."""
    state = _read(pid, "stat").rpartition(b") ")[2][:1]
    return state not in (b"", b"D")


def _read(pid: str, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
