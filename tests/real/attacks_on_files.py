"""Attacks on files, memory and processes of an agent, of its controller and of a job."""

import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from real.attacks_target import Attack, Outcome, Rounds, Target

# Of each process: what is in its memory, what it was started with, and what it has open.
_OF_PROCESSES = ("mem", "environ", "maps", "stack", "fd", "map_files", "cwd", "root", "io")
_SIGNALS = (signal.SIGSTOP, signal.SIGKILL, signal.SIGHUP, signal.SIGCONT)


def reading(target: Target, outcome: Outcome) -> Rounds:
    """Read what is private: folders, keys, journals, memory of processes, shared memory."""
    while True:
        for path in [*target.private, *_of_processes(target)]:
            with outcome.may_be_refused():
                names = os.listdir(path) if os.path.isdir(path) else [_first_byte(path)]
                outcome.note(f"read {path}: {names[:3]}")
        for shared in Path("/dev/shm").iterdir():
            if shared.stat().st_uid != target.uid and os.access(shared, os.R_OK):
                outcome.note(f"can read {shared}")
        yield


def writing(target: Target, outcome: Outcome) -> Rounds:
    """Write, remove and rename what is not his, and put his own in its place."""
    while True:
        with suppress(OSError):
            for name in os.listdir(target.run):
                _harm(f"{target.run}/{name}", outcome)
        for path in target.private:
            _harm(path, outcome)
        with outcome.may_be_refused():
            os.symlink("/etc/passwd", f"{target.run}/planted")
            outcome.note(f"planted a link in {target.run}")
        with outcome.may_be_refused(), open("/dev/kmsg", "w", encoding="utf-8") as kernel:
            kernel.write("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n")
            outcome.note("wrote to the kernel log")
        yield


def signals(target: Target, outcome: Outcome) -> Rounds:
    """Stop and kill processes that are not his, and change how they are scheduled."""
    while True:
        for pid in target.processes:
            for number in _SIGNALS:
                with outcome.may_be_refused():
                    os.kill(pid, number)
                    outcome.note(f"sent {number!r} to {pid}")
            with outcome.may_be_refused():
                os.setpriority(os.PRIO_PROCESS, pid, 19)
                outcome.note(f"changed the priority of {pid}")
            with outcome.may_be_refused():
                _take_descriptors(pid, outcome)
        yield


def _take_descriptors(pid: int, outcome: Outcome) -> None:
    pidfd_getfd = 438
    pidfd = os.pidfd_open(pid)
    try:
        for number in range(3, 20):
            taken = ctypes.CDLL(None, use_errno=True).syscall(pidfd_getfd, pidfd, number, 0)
            if taken < 0:
                outcome.refused += 1
                continue
            os.close(taken)
            outcome.note(f"took descriptor {number} of {pid}")
    finally:
        os.close(pidfd)


def _of_processes(target: Target) -> Iterator[str]:
    for pid in target.processes:
        for name in _OF_PROCESSES:
            yield f"/proc/{pid}/{name}"


def _first_byte(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(1).hex()


def _harm(path: str, outcome: Outcome) -> None:
    changes: dict[str, Callable[[], object]] = {
        "wrote to": partial(os.open, path, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK),
        "renamed": partial(os.rename, path, f"{path}.gone"),
        "removed": partial(os.unlink, path),
        "changed the mode of": partial(os.chmod, path, 0o777),
    }
    for what, change in changes.items():
        with outcome.may_be_refused():
            change()
            outcome.note(f"{what} {path}")


ATTACKS_ON_FILES: dict[str, Attack] = {
    attack.__name__: attack for attack in (reading, writing, signals)
}
