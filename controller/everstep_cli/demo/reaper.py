"""Reaper of the demo: a process that outlives it, kills what is left, and removes its folder.

Run as a file in a session of its own; standard library only. It learns over its standard input, one
JSON object a line, which processes there are and which folder; the end of the input is its sign. So
there is one way to clean up, whether the demo ended, was interrupted, or was killed.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Every process of a demo inherits this variable; its value is the folder, which is unique.
MARK = "EVERSTEP_DEMO_FOLDER"

_PROC = Path("/proc")
_PATIENCE_S = 10.0


@dataclass(frozen=True, slots=True)
class Identity:
    """A process that cannot be mistaken for a later one of the same id."""

    pid: int
    # Clock ticks since boot, field 22 of /proc/PID/stat (proc(5)).
    start: int


def identify(pid: int) -> Identity | None:
    """Return who has this id now; None when nobody has, or only a zombie."""
    found = _stat(pid)
    return Identity(pid, found[1]) if found else None


def parents() -> dict[int, int]:
    """Return the parent of every living process."""
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    found = {pid: _stat(pid) for pid in pids}
    return {pid: stat[0] for pid, stat in found.items() if stat}


def descendants(roots: Iterable[int], parent_of: dict[int, int]) -> set[int]:
    """Return the living children of ``roots``, their children, and so on."""
    known, found = set(roots), set[int]()
    while True:
        more = {pid for pid, parent in parent_of.items() if parent in known} - known
        if not more:
            return found
        known |= more
        found |= more


def environment(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; empty when it cannot be read."""
    try:
        block = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition("=") for item in block.decode(errors="replace").split("\0") if item)
    return {name: value for name, _, value in pairs}


def kill(process: Identity) -> bool:
    """SIGKILL exactly this process; False when it is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if identify(process.pid) != process:
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def kill_all(recorded: set[Identity], folder: str) -> None:
    """Kill the recorded processes, their descendants and whoever bears the mark of this demo."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        left = _left(recorded, folder)
        if not left:
            return
        for process in left:
            kill(process)
        time.sleep(0.02)


def _left(recorded: set[Identity], folder: str) -> set[Identity]:
    parent_of = parents()
    alive = {process for process in recorded if identify(process.pid) == process}
    others = descendants((process.pid for process in alive), parent_of)
    others |= {pid for pid in parent_of if environment(pid).get(MARK) == folder}
    others.discard(os.getpid())
    return alive | {process for process in map(identify, others) if process}


def _stat(pid: int) -> tuple[int, int] | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may contain anything; the fields begin behind the last one.
    state, parent, *rest = text.rpartition(")")[2].split()
    return None if state in "ZX" else (int(parent), int(rest[17]))


def main() -> None:
    """Listen until the demo's end of the pipe is closed, by whatever closed it; then clean."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    recorded, folder, keep = set[Identity](), "", False
    for line in sys.stdin:
        with contextlib.suppress(ValueError, KeyError):  # the last line may be torn
            note = json.loads(line)
            if "folder" in note:
                folder, keep = note["folder"], note["keep"]
            else:
                recorded.add(Identity(note["pid"], note["start"]))
    kill_all(recorded, folder)
    if folder and not keep:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
