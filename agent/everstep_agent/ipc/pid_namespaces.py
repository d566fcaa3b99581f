"""PID namespaces: finds the processes that a launcher names by the numbers of its own namespace.

Who is at the other end of a socket the kernel tells in this agent's numbers. What a launcher writes
in a message is in the launcher's.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from everstep_agent.ipc.processes import ProcessIdentity, descends, identify

_PROC = Path("/proc")
# Ranks are children of their launcher, or grandchildren; breadth first they come before all else.
_LOOKED_AT_MAX = 512


def named_processes(
    numbers: Iterable[int], launcher: ProcessIdentity, uid: int, proc: Path = _PROC
) -> list[ProcessIdentity]:
    """Return those of these processes that run, are this user's, and were started by the launcher.

    A number that it names may be anybody's: the launcher lies.
    """
    pids: Iterable[int] = numbers
    if _depth(launcher.pid, proc):
        known = {number_for(launcher, pid, proc): pid for pid in _below(launcher.pid, proc)}
        pids = [known[number] for number in numbers if number in known]
    found = [identify(pid, proc) for pid in pids if descends(pid, launcher.pid, uid, proc)]
    return [process for process in found if process is not None]


def number_for(launcher: ProcessIdentity | None, pid: int, proc: Path = _PROC) -> int:
    """Return the number by which a launcher knows the process that is ``pid`` here."""
    level = _depth(launcher.pid, proc) if launcher else 0
    numbers = _numbers(pid, proc)
    return numbers[level] if level < len(numbers) else pid


def _depth(pid: int, proc: Path) -> int:
    """Return how many PID namespaces a process is below this agent's."""
    return max(0, len(_numbers(pid, proc)) - 1)


def _numbers(pid: int, proc: Path) -> list[int]:
    """Return its number in each namespace, from this agent's to its own; none when it is gone."""
    try:
        status = (proc / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = re.search(r"^NSpid:([\s\d]*)$", status, re.MULTILINE)
    return [int(word) for word in found[1].split()] if found else [pid]


def _below(ancestor: int, proc: Path) -> Iterator[int]:
    """Yield descendants, children before grandchildren."""
    waiting = [ancestor]
    for _ in range(_LOOKED_AT_MAX):
        if not waiting:
            return
        children = _children(waiting.pop(0), proc)
        yield from children
        waiting += children


def _children(pid: int, proc: Path) -> list[int]:
    found: list[int] = []
    for path in proc.glob(f"{pid}/task/*/children"):
        try:
            found += map(int, path.read_text(encoding="ascii").split())
        except OSError:  # a thread that ended
            continue
    return found
