"""Workers that torchrun starts: found among its children, watched without reaping them.

torchrun tells a rendezvous neither their ids nor how they ended; the kernel does.
"""

import contextlib
import gc
import json
import os
import selectors
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from everstep.launch.processes.children import children, kill_group
from everstep.launch.processes.rank_failure import RankEnd
from everstep_common.clock import boot_ns

_ERROR_FILE_BYTES_MAX = 1 << 20
_LINES_MAX = 50


@dataclass(slots=True)
class TorchrunWorker:
    """Process that torchrun has started as a rank, until its end is known."""

    rank: int
    pid: int
    pidfd: int
    error_file: str
    ended: bool = False
    # When it was seen that torchrun had been faster, and had reaped it.
    missed_boot_ns: int = 0


@dataclass(slots=True)
class TorchrunWorkers:
    """The workers of one generation; ``on_end`` hears of ends that torchrun had not seen yet."""

    selector: selectors.BaseSelector
    on_end: Callable[[RankEnd], None]
    # Returns what torchrun remembers of a process that it has reaped.
    remembered: Callable[[int], int | None]
    proc: Path = Path("/proc")
    found: dict[int, TorchrunWorker] = field(default_factory=dict)
    generation: int = 0

    def begin(self, generation: int) -> None:
        """Look for the workers of a new generation."""
        self.close()
        self.generation = generation

    def find_started(self) -> None:
        """Find those that have been started meanwhile."""
        known = {worker.pid for worker in self.found.values()}
        for pid in children(self.proc) - known:
            environ = _environ(self.proc / str(pid))
            if environ.get("EVERSTEP_GENERATION") == str(self.generation) and "RANK" in environ:
                self._watch(pid, int(environ["RANK"]), environ.get("TORCHELASTIC_ERROR_FILE", ""))

    def running(self) -> dict[int, int]:
        """Return the process of each rank that runs."""
        return {rank: one.pid for rank, one in self.found.items() if not one.ended}

    def missed(self) -> list[RankEnd]:
        """Return the ends that torchrun saw first, once it has seen all."""
        found = []
        for worker in self.found.values():
            if worker.missed_boot_ns:
                code = self.remembered(worker.pid)
                found.append(_end(worker, 1 if code is None else code, worker.missed_boot_ns))
        return found

    def kill(self) -> None:
        """Kill those that run and all in their process groups."""
        for pid in self.running().values():
            kill_group(pid, signal.SIGKILL)

    def close(self) -> None:
        """Watch none of them any more."""
        for worker in self.found.values():
            self._forget(worker)
        self.found.clear()

    def _watch(self, pid: int, rank: int, error_file: str) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        worker = TorchrunWorker(rank, pid, pidfd, error_file)
        self.found[rank] = worker
        self.selector.register(pidfd, selectors.EVENT_READ, lambda: self._ended(worker))

    def _ended(self, worker: TorchrunWorker) -> None:
        end = _how(worker)
        if end is None:
            worker.missed_boot_ns = boot_ns()
            self._forget(worker)
            return
        # A zombie yet, so the number of its group cannot be another's.
        kill_group(worker.pid, signal.SIGKILL)
        self._forget(worker)
        self.on_end(end)

    def _forget(self, worker: TorchrunWorker) -> None:
        if not worker.ended:
            worker.ended = True
            self.selector.unregister(worker.pidfd)
            os.close(worker.pidfd)


def _how(worker: TorchrunWorker) -> RankEnd | None:
    """Return how a worker ended, and leave it to torchrun; None when torchrun was faster."""
    try:
        told = os.waitid(os.P_PIDFD, worker.pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
    except ChildProcessError:
        return None
    if told is None:
        return None
    code = told.si_status if told.si_code == os.CLD_EXITED else -told.si_status
    return _end(worker, code, boot_ns(), core_dumped=told.si_code == os.CLD_DUMPED)


def _end(
    worker: TorchrunWorker, code: int, at_boot_ns: int, *, core_dumped: bool = False
) -> RankEnd:
    return RankEnd(
        rank=worker.rank,
        code=code,
        core_dumped=core_dumped,
        at_boot_ns=at_boot_ns,
        last_lines=_error_lines(worker.error_file) if code else (),
    )


def _error_lines(path: str) -> tuple[str, ...]:
    """Return the traceback that torch's ``@record`` has left of a rank's exception, if it has."""
    if not path:
        return ()
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        with open(path, encoding="utf-8", errors="replace") as file:
            told = json.loads(file.read(_ERROR_FILE_BYTES_MAX))
        text = told["message"]["extraInfo"]["py_callstack"]
        return tuple(str(text).rstrip().splitlines()[-_LINES_MAX:])
    return ()


def _environ(folder: Path) -> Mapping[str, str]:
    """Return the variables that a process was started with; none of one that has ended."""
    try:
        raw = (folder / "environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def exit_code(pid: int) -> int | None:
    """Return the exit code of a worker that torchrun has reaped; None where it has none.

    torchrun keeps it in an object that a rendezvous is not given; it stays until the next start.
    """
    from torch.distributed.elastic.multiprocessing import subprocess_handler  # torchrun has it

    for one in gc.get_objects():
        if type(one) is subprocess_handler.SubprocessHandler and one.proc.pid == pid:
            return one.proc.returncode
    return None
