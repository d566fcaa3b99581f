"""Sweeper: ends what a killed launcher left: ``sweeper.py LAUNCHER MARK GROUPS FOLDER [PID …]``.

The kernel ends ranks with their launcher, not what they have started. This process outlives it, as
the same user, so that it can end nothing that is another's. Run by path with ``python -I -S``.
"""

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Mapping
from typing import NamedTuple

VARIABLE = "EVERSTEP_LAUNCHER"
# Signals that end a job end its launcher; this process ignores them, as its work begins then.
IGNORED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT})
# How often it looks at who descends from the launcher: 1,000 processes take it 15 ms.
_LOOK_S = 10.0
_ROUND_S = 0.05
# Processes that the kernel holds (a dead disk) are waited for no longer before it is told of them.
# Their control group is removed when they have ended: looked at so often, and for so long at most.
_GIVE_UP_S = 30.0
_HELD_ROUND_S, _HELD_S = 1.0, 3600.0
# What a launcher says on standard input that has ended by itself, and left such a group.
ENDED = b"ended\n"


class Process(NamedTuple):
    """One running process; ``ticks``, when it started, tells it from a later one of its pid."""

    pid: int
    ticks: int
    parent: int
    group: int
    session: int


def running(proc: str = "/proc") -> dict[int, Process]:
    """Return every process but zombies."""
    found = (identify(int(name), proc) for name in os.listdir(proc) if name.isdigit())
    return {process.pid: process for process in found if process}


def identify(pid: int, proc: str = "/proc") -> Process | None:
    """Return a running process; None when there is none, or only a zombie."""
    try:
        with open(f"{proc}/{pid}/stat", "rb") as file:
            # Counted behind the name, which may contain anything: proc_pid_stat(5).
            fields = file.read().rpartition(b")")[2].split()
        parent, group, session, ticks = map(int, (*fields[1:4], fields[19]))
    except (OSError, IndexError, ValueError):
        return None
    return None if fields[0] in (b"Z", b"X") else Process(pid, ticks, parent, group, session)


def marked(processes: Iterable[Process], mark: str, proc: str = "/proc") -> set[int]:
    """Return who has the launcher's mark in its environment, of those whose environment we see."""
    wanted = f"{VARIABLE}={mark}".encode()
    found = set()
    for process in processes:
        try:
            with open(f"{proc}/{process.pid}/environ", "rb") as file:
                if wanted in file.read().split(b"\0"):
                    found.add(process.pid)
        except OSError:
            continue
    return found


def place(pid: int, proc: str = "/proc") -> dict[str, str]:
    """Return the control group of a process in each hierarchy; none when it is gone."""
    try:
        with open(f"{proc}/{pid}/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            fields = [line.rstrip("\n").split(":", 2) for line in file]
        return {number: path.rstrip("/") for number, _, path in fields}
    except (OSError, ValueError):
        return {}


def within(there: Mapping[str, str], pid: int, proc: str = "/proc") -> bool:
    """Return whether a process is in these control groups, or below them.

    A rank may have submitted another job: that has the mark from it, and groups of its own.
    """
    groups = place(pid, proc)
    return groups.keys() == there.keys() and all(
        f"{path}/".startswith(f"{there[number]}/") for number, path in groups.items()
    )


def below(processes: Mapping[int, Process], roots: Iterable[int], spared: set[int]) -> set[int]:
    """Return the processes that descend from these, and these, without the spared ones' trees."""
    found = {pid for pid in roots if pid in processes and pid not in spared}
    waiting = list(found)
    children: dict[int, list[int]] = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    while waiting:
        new = [pid for pid in children.get(waiting.pop(), []) if pid not in found | spared]
        found.update(new)
        waiting += new
    return found


def remains(
    processes: Mapping[int, Process],
    known: Mapping[int, Process],
    roots: set[int],
    spared: set[int],
) -> set[int]:
    """Return what is left of a launcher that had the ``known`` processes, besides the ``roots``.

    Groups and sessions are inherited: who is in one that a known process led descends from it.
    """
    leaders = {
        pid: one.ticks for pid, one in known.items() if processes.get(pid, one).ticks == one.ticks
    }
    still = {pid for pid in leaders if pid in processes}
    led = {
        process.pid
        for process in processes.values()
        for leader in (process.group, process.session)
        if process.ticks >= leaders.get(leader, process.ticks + 1)
    }
    return below(processes, roots | still | led, spared)


def kill(process: Process) -> bool:
    """Kill a process, and no other that got its pid since; return whether that is allowed."""
    try:
        pidfd = os.pidfd_open(process.pid)
    except OSError:
        return True
    try:
        now = identify(process.pid)
        if now and now.ticks == process.ticks:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(pidfd)
    return True


def groups_of(start: str) -> list[str]:
    """Return the control groups whose paths begin so; none for ""."""
    folder, _, name = start.rpartition("/")
    try:
        return [f"{folder}/{one}" for one in os.listdir(folder) if one.startswith(name)]
    except OSError:
        return []


def end_group(folder: str) -> bool:
    """End all that runs in a control group; return whether it is gone, which takes moments."""
    try:
        # Not made where it is missing: a kernel before 5.14.
        fd = os.open(f"{folder}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)
    except OSError:
        pass  # what is in it has the launcher's mark as well
    return remove_group(folder)


def remove_group(folder: str) -> bool:
    """Remove a control group and those that were made in it; return whether it is gone.

    The kernel keeps it while something runs in it, threads of a process that has ended included.
    """
    for place_, _, _ in os.walk(folder, topdown=False):
        try:
            os.rmdir(place_)
        except OSError:
            continue
    return not os.path.isdir(folder)


class Sweeper:
    """Sweeper of one launcher: knows whose processes it ends, and ends them once."""

    def __init__(self, launcher: int, mark: str, groups: str, spared: set[int]) -> None:
        """``groups`` is the start of the names of the launcher's control groups; it may be ""."""
        self._launcher = launcher
        self._mark = mark
        self._groups = groups
        self._spared = spared | {os.getpid()}
        self._known: dict[int, Process] = {}
        self._place = place(launcher) or place(os.getpid())

    def wait(self) -> None:
        """Return when the launcher is gone."""
        try:
            pidfd = os.pidfd_open(self._launcher)
        except OSError:
            return
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        while os.getppid() == self._launcher and not poll.poll(_LOOK_S * 1000):
            processes = running()
            # A look at a launcher that has just gone would show nothing.
            if tree := below(processes, [self._launcher], self._spared):
                self._known = {pid: processes[pid] for pid in tree - {self._launcher}}
                self._place = place(self._launcher) or self._place

    def sweep(self) -> int:
        """End all that is left; return how many processes it may not end."""
        denied: set[Process] = set()
        quiet, give_up_at = 0, time.monotonic() + _GIVE_UP_S
        # Twice nothing: one look can miss what was forked while it went on.
        while quiet < 2 and time.monotonic() < give_up_at:
            busy = self._end_groups()
            processes = running()
            roots = marked(processes.values(), self._mark)
            roots = {pid for pid in roots if within(self._place, pid)}
            left = {processes[pid] for pid in remains(processes, self._known, roots, self._spared)}
            self._known |= {one.pid: one for one in left}
            denied |= {one for one in left if not kill(one)}
            quiet = 0 if busy or left - denied else quiet + 1
            time.sleep(_ROUND_S)
        return len(denied)

    def wait_for_groups(self) -> None:
        """Remove what the kernel holds processes in, when it has let them go; tell nobody.

        Whoever reads what the launcher wrote gets its end now.
        """
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        give_up_at = time.monotonic() + _HELD_S
        while self._end_groups() and time.monotonic() < give_up_at:
            time.sleep(_HELD_ROUND_S)

    def _end_groups(self) -> bool:
        """End the launcher's groups; return whether one is still there."""
        gone = [end_group(one) for one in groups_of(self._groups)]
        return not all(gone)


def remove(folder: str) -> None:
    """Remove the folder of the ranks' files, if there is one."""
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: list[str]) -> int:
    """Wait for the launcher's end, and sweep."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    launcher, mark, groups, folder, *spared = arguments
    sweeper = Sweeper(int(launcher), mark, groups, set(map(int, spared)))
    sweeper.wait()
    code = 0 if _has_ended() else _sweep(sweeper, launcher, folder)
    sweeper.wait_for_groups()
    return code


def _has_ended() -> bool:
    """Return whether the launcher has ended by itself, as far as it could."""
    os.set_blocking(0, False)
    try:
        return os.read(0, len(ENDED)) == ENDED
    except OSError:
        return False


def _sweep(sweeper: Sweeper, launcher: str, folder: str) -> int:
    denied = sweeper.sweep()
    remove(folder)
    told = f"everstep: launcher {launcher} was killed; what its ranks had started was ended as well"
    told += f", but for {denied} processes of another user" if denied else ""
    try:
        os.write(2, f"{told}\n".encode())
    except OSError:  # whoever read it is gone, too
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
