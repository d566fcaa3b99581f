"""Line process: a child process that exchanges lines with the event loop, without a thread."""

import asyncio
import logging
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

logger = logging.getLogger(__name__)

_LINE_BYTES_MAX = 4 << 20
_READ_BYTES = 1 << 16
_STACK_LINES = 4


class LineProcess:
    """One process. ``on_line`` gets each line of its output, ``on_end`` one sentence at its end."""

    def __init__(
        self,
        command: tuple[str, ...],
        on_line: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        """Start it. Raises OSError; needs a running event loop."""
        self._on_line = on_line
        self._on_end = on_end
        self._partial = bytearray()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What it complains of comes to the agent's log.
            bufsize=0,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin.fileno(), self.process.stdout.fileno()
        for descriptor in (self._input, self._output):
            os.set_blocking(descriptor, False)
        self._loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        self._loop.add_reader(self._output, self._read)

    def send(self, line: bytes) -> None:
        """Send a line. One that takes nothing misses its deadline; one that ended says so."""
        try:
            os.write(self._input, line)
        except OSError as error:
            logger.debug("process %d takes no request: %s", self.process.pid, error)

    def kill(self) -> None:
        """Close the pipes and kill it; it may take its time to die."""
        self._stop_reading()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.kill()

    def _stop_reading(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._output)
        self._loop = None

    def _read(self) -> None:
        try:
            data = os.read(self._output, _READ_BYTES)
        except BlockingIOError:
            return
        if not data or len(self._partial) > _LINE_BYTES_MAX:
            self._stop_reading()
            ended = self.process.poll()
            self._on_end("it ended" if ended is None else f"it ended ({ended})")
            return
        *lines, rest = (self._partial + data).split(b"\n")
        self._partial = rest
        for line in lines:
            self._on_line(bytes(line))


class Exits(Protocol):
    """Whatever knows when a process is gone."""

    async def within(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """Return whether it is gone, waiting at most so long."""
        ...


class PidfdExits:
    """Waits for the kernel to tell."""

    async def within(self, process: subprocess.Popen[bytes], seconds: float) -> bool:
        """See Exits."""
        if process.poll() is not None:
            return True
        loop = asyncio.get_running_loop()
        gone = asyncio.Event()
        descriptor = os.pidfd_open(process.pid)
        loop.add_reader(descriptor, gone.set)
        try:
            async with asyncio.timeout(seconds):
                await gone.wait()
        except TimeoutError:
            return False
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)
        return process.poll() is not None


def where_it_waits(proc: Path, pid: int) -> str:
    """Return in which state a process is, and where in the kernel, as far as the kernel tells.

    Only files that need no lock of the process's memory: those can hang as it does.
    """
    folder = proc / str(pid)
    state = _text(folder / "stat").rpartition(") ")[2][:1]
    told = [f"process {pid} is in state {state or 'unknown'}"]
    if (place := _text(folder / "wchan")) and place != "0":
        told.append(f"waits in {place}")
    if frames := [line.split("+")[0].split()[-1] for line in _text(folder / "stack").splitlines()]:
        told.append(f"called from {' < '.join(frames[:_STACK_LINES])}")
    return ", ".join(told)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
