"""Processes of the launcher: started, found, adopted and reaped, and swept up after it."""

import contextlib
import ctypes
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from everstep.launch.processes.generation_group import group_name, own_group, remove_left
from everstep.launch.processes.sweeper import ENDED, IGNORED, VARIABLE, end_group, groups_of

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


_SHIM = str(Path(__file__).with_name("rank_shim.py"))


def spawn(
    command: Sequence[str], environ: Mapping[str, str], descriptors: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a command that inherits ``descriptors``; its output comes by pipes. Raises OSError."""
    return subprocess.Popen(
        # -I and -S: nothing of the job's environment can break the shim, and it starts sooner.
        [sys.executable, "-I", "-S", _SHIM, str(os.getpid()), *command],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
        pass_fds=tuple(descriptors),
    )


_SWEEPER = str(Path(__file__).with_name("sweeper.py"))


class Sweeping:
    """The sweeper of this launcher; without one, a launcher that is killed leaves grandchildren."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start it; ``folder`` goes with the launcher. It is not taken for what a rank has left."""
        self._mark = secrets.token_hex(16)
        own = self._own = own_group(Path("/proc/self"))
        self._groups = f"{own}/{group_name(os.getpid(), 0).removesuffix('0')}" if own else ""
        foreign = map(str, children())
        words = [str(os.getpid()), self._mark, self._groups, str(folder or ""), *foreign]
        # It has these blocked until it ignores them: what is sent to all of a job's processes while
        # its interpreter starts must not end it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
        try:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [sys.executable, "-I", "-S", _SWEEPER, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                # Not in reach of what is sent to the launcher's group or comes from its terminal.
                start_new_session=True,
            )
        except OSError:  # no process is to be had: the ranks will say so
            self._process = None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the environment by which the sweeper knows the ranks and all that they start."""
        return {**environ, VARIABLE: self._mark}

    def dismiss(self) -> None:
        """The launcher has seen to everything itself, as far as the kernel lets it."""
        gone = [end_group(one) for one in groups_of(self._groups)]
        if self._own is not None:
            remove_left(self._own)  # what was still held when this launcher began
        if self._process is None:
            return
        assert self._process.stdin is not None
        with self._process.stdin as words, contextlib.suppress(OSError):
            words.write(b"" if all(gone) else ENDED)
        if all(gone):
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
