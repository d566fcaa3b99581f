"""Workers: the ranks of one generation on this node, each in a process group of its own."""

import array
import fcntl
import glob
import os
import re
import selectors
import signal
import subprocess
import termios
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from everstep.launch.output.line_writer import LineWriter
from everstep.launch.processes import children
from everstep.launch.processes.children import spawn
from everstep.launch.processes.generation_group import GenerationGroup, group_name
from everstep.launch.processes.rank_failure import RankEnd, is_giving_up
from everstep_common.clock import boot_ns

_READ_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """Plan of one rank: the process to start, and where its output goes."""

    rank: int
    command: Sequence[str]
    environ: Mapping[str, str]
    out: LineWriter
    error: LineWriter
    # Descriptors that the rank inherits besides its standard streams.
    descriptors: tuple[int, ...] = ()


@dataclass(slots=True)
class Worker:
    """Process of one running rank."""

    rank: int
    process: subprocess.Popen[bytes]
    pidfd: int
    error: LineWriter
    streams: dict[IO[bytes], LineWriter] = field(default_factory=dict)


class Workers:
    """Ranks of one generation: starts and stops them, shows their output, reports their ends."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_exit: Callable[[RankEnd], None],
        waiting: Callable[[], set[int]] = set,
    ) -> None:
        """``waiting`` returns the children that are no ranks yet."""
        self._selector = selector
        self._on_exit = on_exit
        self._waiting = waiting
        # Where ranks work, and leave core dumps; it may be removed meanwhile.
        self._folder = Path.cwd()
        self._workers: dict[int, Worker] = {}
        self._groups: set[int] = set()
        self._together: GenerationGroup | None = None
        # Those of generations that are over, in which the kernel still holds something.
        self._held: list[GenerationGroup] = []
        # Children from before: whoever exec'ed the launcher may have left some. Not ours to kill.
        self._foreign = children.children()
        self._abandoned: list[Worker] = []

    def running(self) -> dict[int, int]:
        """Return the process id of every rank that has not ended."""
        return {rank: worker.process.pid for rank, worker in self._workers.items()}

    def is_giving_up(self) -> bool:
        """Return whether a rank has begun to end because of others that it has waited for."""
        told = (worker.error.traceback for worker in self._workers.values())
        return any(is_giving_up(one.lines, one.began_ns, boot_ns()) for one in told)

    def begin(self, generation: int) -> None:
        """The ranks that are started next are one generation."""
        self._together = GenerationGroup.make(group_name(os.getpid(), generation))

    def start(self, plan: WorkerPlan) -> None:
        """Start a rank. Raises OSError."""
        process = spawn(plan.command, plan.environ, plan.descriptors)
        self.adopt(plan, process, os.pidfd_open(process.pid))

    def adopt(self, plan: WorkerPlan, process: subprocess.Popen[bytes], pidfd: int) -> None:
        """Take a process that is to be this rank from now on."""
        self._groups.add(process.pid)
        if self._together:
            self._together.add(process.pid)
        assert process.stdout is not None
        assert process.stderr is not None
        worker = Worker(plan.rank, process, pidfd, plan.error)
        self._workers[plan.rank] = worker
        self._selector.register(worker.pidfd, selectors.EVENT_READ, lambda: self._ended(worker))
        self._follow(worker, process.stdout, plan.out)
        self._follow(worker, process.stderr, plan.error)

    def signal_groups(self, number: signal.Signals) -> None:
        """Send a signal to every process group, also to those whose leader has ended."""
        for group in self._groups:
            children.kill_group(group, number)
        if number == signal.SIGKILL and self._together:
            self._together.kill()

    def gone(self) -> bool:
        """Kill what is left beside the ranks; return whether nothing is."""
        if self._workers:
            return False
        for pid in self._strays():
            os.kill(pid, signal.SIGKILL)  # our own unreaped child: the pid cannot be another's
            children.reap(pid)
        if self.left():
            return False
        self._forget_groups()
        return True

    def left(self) -> set[int]:
        """Return every process of the generation that is not gone."""
        together = self._together.pids() if self._together else set()
        return set(self.running().values()) | self._strays() | together

    def abandon(self) -> None:
        """Count no longer on what cannot be killed; it ends when the kernel lets it."""
        self._foreign |= self.left()
        for worker in self._workers.values():
            self._forget(worker)
            self._abandoned.append(worker)
        self._workers.clear()
        self._forget_groups()

    def reap_strays(self) -> None:
        """Collect adopted and abandoned processes that have ended."""
        for pid in self._strays():
            children.reap(pid)
        self._abandoned = [one for one in self._abandoned if one.process.poll() is None]
        self._remove_held()

    def _strays(self) -> set[int]:
        ours = set(self.running().values()) | self._waiting()
        return children.children() - self._foreign - ours

    def _forget_groups(self) -> None:
        self._groups.clear()
        if self._together:
            self._held.append(self._together)
            self._together = None
        self._remove_held()

    def _remove_held(self) -> None:
        self._held = [one for one in self._held if not one.remove()]

    def _follow(self, worker: Worker, stream: IO[bytes], writer: LineWriter) -> None:
        os.set_blocking(stream.fileno(), False)
        worker.streams[stream] = writer
        # One read at a time: a rank that writes without end must not keep the others waiting.
        self._selector.register(stream, selectors.EVENT_READ, lambda: self._read(worker, stream))

    def _read(self, worker: Worker, stream: IO[bytes]) -> None:
        try:
            data = os.read(stream.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if data:
            worker.streams[stream].write(data)
        else:
            self._unfollow(worker, [stream])

    def _unfollow(self, worker: Worker, streams: Iterable[IO[bytes]]) -> None:
        for stream in streams:
            self._selector.unregister(stream)
            worker.streams.pop(stream).close()
            stream.close()

    def _forget(self, worker: Worker) -> None:
        self._selector.unregister(worker.pidfd)
        os.close(worker.pidfd)
        # What the rank itself wrote is in the pipes now; a process that it left may hold them open,
        # and write without end.
        for stream, writer in worker.streams.items():
            writer.write(_buffered(stream))
        self._unfollow(worker, list(worker.streams))

    def _ended(self, worker: Worker) -> None:
        # The kernel hands out descriptors in the order in which they became ready.
        at_boot_ns = boot_ns()
        core_dumped = _dumped_core(worker.process.pid)
        code = worker.process.wait()
        if code != 0:  # its data loaders and the like hold memory, devices and ports
            children.kill_group(worker.process.pid, signal.SIGKILL)
        self._forget(worker)
        del self._workers[worker.rank]
        error = worker.error
        self._on_exit(
            RankEnd(
                rank=worker.rank,
                code=code,
                core_dumped=core_dumped,
                at_boot_ns=at_boot_ns,
                last_lines=tuple(error.last_lines),
                traceback=error.traceback.lines,
                traceback_boot_ns=error.traceback.began_ns,
                core_file=core_file(worker.process.pid, self._folder) if core_dumped else "",
            )
        )


def _buffered(pipe: IO[bytes]) -> bytes:
    """Return what is in a pipe at this moment."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return os.read(pipe.fileno(), count[0]) if count[0] else b""


def _dumped_core(pid: int) -> bool:
    """Return whether a child that has ended left a core dump; it stays to be waited for."""
    try:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    except ChildProcessError:
        return False
    return ended is not None and ended.si_code == os.CLD_DUMPED


# core(5)
_SPECIFIER = re.compile(r"%(.)")


def core_file(pid: int, folder: Path, kernel: Path = Path("/proc/sys/kernel")) -> str:
    """Return its path, or the command that shows it; "" where neither is known.

    ``folder`` is where the rank worked, ``pid`` its number as it knows it itself.
    """
    try:
        pattern = (kernel / "core_pattern").read_text(encoding="utf-8").strip()
        adds_pid = (kernel / "core_uses_pid").read_text(encoding="ascii").strip() != "0"
    except (OSError, ValueError):
        return ""
    if pattern.startswith("|"):
        return f"coredumpctl info {pid}" if "systemd-coredump" in pattern else ""
    if adds_pid and "%p" not in pattern:
        pattern += ".%p"
    wanted = folder / _SPECIFIER.sub(lambda found: _expanded(found[1], pid), pattern)
    there = [path for path in glob.glob(str(wanted)) if Path(path).is_file()]
    return max(there, key=_written_s, default="")


def _expanded(specifier: str, pid: int) -> str:
    if specifier == "p":
        return str(pid)
    # Name, time, signal and the like: whatever they were.
    return "%" if specifier == "%" else "*"


def _written_s(path: str) -> float:
    try:
        return Path(path).stat().st_mtime
    except OSError:
        return 0.0
