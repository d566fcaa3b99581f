"""The training processes of one generation on this node: each in a process group of its own."""

import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from everstep.launch import children
from everstep.launch.terminal import LineWriter, Terminal

_SHIM = str(Path(__file__).with_name("rank_shim.py"))
_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What to start as one rank."""

    rank: int
    command: Sequence[str]
    environ: Mapping[str, str]
    log: Path | None


@dataclass(frozen=True, slots=True)
class Failure:
    """How a rank ended with an error."""

    generation: int
    rank: int
    exit_code: int
    signal: int
    last_lines: tuple[str, ...]

    def sentence(self) -> str:
        """Return what happened, in words."""
        if self.signal:
            how = f"was killed by {signal.Signals(self.signal).name}"
        else:
            how = f"exited with code {self.exit_code}"
        return f"rank {self.rank} of generation {self.generation} {how}"

    def last_line(self) -> str:
        """Return the last line with something in it."""
        return next((line for line in reversed(self.last_lines) if line.strip()), "")


@dataclass(slots=True)
class Worker:
    """One running rank."""

    rank: int
    process: subprocess.Popen[bytes]
    pidfd: int
    out: LineWriter
    error: LineWriter
    streams: dict[IO[bytes], LineWriter] = field(default_factory=dict)


class Workers:
    """Starts ranks, shows what they write, tells when they end, stops all that they started."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        terminal: Terminal,
        on_exit: Callable[[int, int, tuple[str, ...]], None],
    ) -> None:
        """``on_exit`` is called with rank, Popen's return code and the last lines of its stderr."""
        self._selector = selector
        self._terminal = terminal
        self._on_exit = on_exit
        self._workers: dict[int, Worker] = {}
        self._groups: set[int] = set()
        # Children from before: whoever exec'ed the launcher may have left some. Not ours to kill.
        self._foreign = children.children()

    def running(self) -> dict[int, int]:
        """Return the process id of every rank that has not ended."""
        return {rank: worker.process.pid for rank, worker in self._workers.items()}

    def start(self, plan: WorkerPlan) -> None:
        """Start a rank. Raises OSError."""
        process = subprocess.Popen(
            # -I and -S: nothing of the job's environment can break the shim, and it starts sooner.
            [sys.executable, "-I", "-S", _SHIM, str(os.getpid()), *plan.command],
            env=plan.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        self._groups.add(process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        worker = Worker(
            plan.rank,
            process,
            os.pidfd_open(process.pid),
            self._writer(plan, "out", is_error=False),
            self._writer(plan, "err", is_error=True),
        )
        self._workers[plan.rank] = worker
        self._selector.register(worker.pidfd, selectors.EVENT_READ, lambda: self._ended(worker))
        self._follow(worker, process.stdout, worker.out)
        self._follow(worker, process.stderr, worker.error)

    def signal_groups(self, number: signal.Signals) -> None:
        """Send a signal to every process group, also to those whose leader has ended."""
        for group in self._groups:
            children.kill_group(group, number)

    def gone(self) -> bool:
        """Kill what is left beside the ranks; return whether nothing is."""
        if self._workers:
            return False
        for pid in self._strays():
            os.kill(pid, signal.SIGKILL)  # our own unreaped child: the pid cannot be another's
            children.reap(pid)
        if self._strays():
            return False
        self._groups.clear()
        return True

    def reap_strays(self) -> None:
        """Collect adopted processes that have ended."""
        for pid in self._strays():
            children.reap(pid)

    def _strays(self) -> set[int]:
        return children.children() - self._foreign - set(self.running().values())

    def _writer(self, plan: WorkerPlan, suffix: str, *, is_error: bool) -> LineWriter:
        log = plan.log.with_suffix(f".{suffix}") if plan.log else None
        return LineWriter(self._terminal, plan.rank, log, is_error=is_error)

    def _follow(self, worker: Worker, stream: IO[bytes], writer: LineWriter) -> None:
        os.set_blocking(stream.fileno(), False)
        worker.streams[stream] = writer
        self._selector.register(
            stream, selectors.EVENT_READ, lambda: self._read(worker, stream, once=True)
        )

    def _read(self, worker: Worker, stream: IO[bytes], *, once: bool) -> None:
        while stream in worker.streams:
            try:
                data = os.read(stream.fileno(), _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                self._unfollow(worker, [stream])
                return
            worker.streams[stream].write(data)
            if once:  # a rank that writes without end must not keep the others waiting
                return

    def _unfollow(self, worker: Worker, streams: Iterable[IO[bytes]]) -> None:
        for stream in streams:
            self._selector.unregister(stream)
            worker.streams.pop(stream).close()
            stream.close()

    def _ended(self, worker: Worker) -> None:
        self._selector.unregister(worker.pidfd)
        os.close(worker.pidfd)
        code = worker.process.wait()
        if code != 0:  # its data loaders and the like hold memory, devices and ports
            children.kill_group(worker.process.pid, signal.SIGKILL)
        # What the rank itself wrote is in the pipes now; a process that it left may hold them open.
        for stream in list(worker.streams):
            self._read(worker, stream, once=False)
        self._unfollow(worker, list(worker.streams))
        del self._workers[worker.rank]
        self._on_exit(worker.rank, code, tuple(worker.error.last_lines))
