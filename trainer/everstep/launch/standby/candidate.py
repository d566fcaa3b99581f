"""Candidate: one warm standby as the launcher sees it, from its start until it becomes a rank."""

import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from everstep.launch.processes import children
from everstep.launch.processes.children import spawn
from everstep.launch.standby.python_command import PythonCommand

_WAITING = str(Path(__file__).with_name("waiting.py"))
# The largest that an unprivileged process may ask for (/proc/sys/fs/pipe-max-size); an environment
# that does not fit is handed over by an ordinary start.
_PIPE_BYTES = 1024 * 1024
# What an import writes (warnings) belongs to the rank; more than this of it is not kept.
_SAID_BYTES_MAX = 64 * 1024
_F_SETPIPE_SZ = 1031


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Work of a standby before it waits."""

    command: PythonCommand
    modules: tuple[str, ...]
    # Say nothing of what cannot be imported.
    quiet: bool = False
    # Index of the device whose context it opens; -1 opens none.
    device: int = -1
    # Descriptor that the process inherits besides its pipes; -1: none.
    descriptor: int = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """Standby that has become a rank, and what it had written before."""

    process: subprocess.Popen[bytes]
    pidfd: int
    said: tuple[bytes, bytes]


class Candidate:
    """Standby that warms up, then waits; it is ended or becomes a rank."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        warm_up: WarmUp,
        environ: Mapping[str, str],
        changed: Callable[["Candidate"], None],
    ) -> None:
        """``changed`` is called when it is ready, and when it has ended. Raises OSError."""
        self.warm_up = warm_up
        self.ready = False
        # The process has died, or has become a rank.
        self.ended = False
        # What could not be imported, when it is ready; how it ended, when it has ended.
        self.remark = ""
        # When it was last measured.
        self.memory_bytes = 0
        self._selector = selector
        self._changed = changed
        self._ready, ready = os.pipe()
        order, self._order = os.pipe()
        try:
            self.process = self._spawn(environ, ready, order)
        except OSError:
            os.close(self._ready)
            os.close(self._order)
            raise
        finally:
            os.close(ready)
            os.close(order)
        self._pidfd = os.pidfd_open(self.process.pid)
        self._said: dict[IO[bytes], bytearray] = {}
        self._follow()
        modules = list(warm_up.modules)
        self._send({"modules": modules, "quiet": warm_up.quiet, "device": warm_up.device})

    def measure(self, proc: Path = Path("/proc")) -> int:
        """Return its share of memory (PSS): libraries are shared with the ranks. 0: unknown.

        The kernel walks all of its pages for that: milliseconds.
        """
        self.memory_bytes = 0
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = (proc / str(self.process.pid) / "smaps_rollup").read_text()
            line = next((one for one in text.splitlines() if one.startswith("Pss:")), "")
            self.memory_bytes = int(line.split()[1]) * 1024
        return self.memory_bytes

    def become(self, environ: Mapping[str, str]) -> Taken | None:
        """Make it a rank; None when it cannot be told, and then it is ended."""
        command = self.warm_up.command
        order = {
            "script": command.script,
            "module": command.module,
            "arguments": list(command.arguments),
            "environ": dict(environ),
            "isolated": command.isolated,
            "command": list(command.words),
        }
        if self.ended or not self._send(order):
            self.end()
            return None
        self.ended = True
        self._forget()
        out, error = (bytes(said) for said in self._said.values())
        return Taken(self.process, self._pidfd, (out, error))

    def end(self) -> None:
        """Kill it; it only waits."""
        if self.ended:
            return
        children.kill_group(self.process.pid, signal.SIGKILL)
        self._gone()

    def _spawn(self, environ: Mapping[str, str], ready: int, order: int) -> subprocess.Popen[bytes]:
        command = self.warm_up.command
        arguments = [_WAITING, str(ready), str(order)]
        inherited = [number for number in (ready, order, self.warm_up.descriptor) if number >= 0]
        return spawn([command.interpreter, *command.flags, *arguments], environ, inherited)

    def _follow(self) -> None:
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            self._said[stream] = bytearray()
            self._selector.register(stream, selectors.EVENT_READ, self._collector(stream))
        self._selector.register(self._pidfd, selectors.EVENT_READ, self._on_exit)
        self._selector.register(self._ready, selectors.EVENT_READ, self._on_ready)

    def _collector(self, stream: IO[bytes]) -> Callable[[], None]:
        def collect() -> None:
            with contextlib.suppress(BlockingIOError):
                data = os.read(stream.fileno(), _SAID_BYTES_MAX)
                if not data:
                    self._selector.unregister(stream)
                self._said[stream] += data[: _SAID_BYTES_MAX - len(self._said[stream])]

        return collect

    def _send(self, order: Mapping[str, object]) -> bool:
        line = json.dumps(order).encode() + b"\n"
        try:
            os.set_blocking(self._order, False)
            with contextlib.suppress(OSError):
                fcntl.fcntl(self._order, _F_SETPIPE_SZ, _PIPE_BYTES)
            return os.write(self._order, line) == len(line)
        except OSError:  # gone, or too much
            return False

    def _on_ready(self) -> None:
        answer = os.read(self._ready, 65536)
        self._selector.unregister(self._ready)
        if answer:  # without one it has died: the other descriptor tells
            self.ready, self.remark = True, answer.decode(errors="replace").strip()
            self._changed(self)

    def _on_exit(self) -> None:
        code = self.process.poll()
        how = f"signal {-code}" if code and code < 0 else f"exit code {code}"
        self.remark = f"{how} {self._last_words()}".strip()
        self._gone()
        self._changed(self)

    def _last_words(self) -> str:
        error = list(self._said.values())[1].decode(errors="replace").strip().splitlines()
        return f"({error[-1]})" if error else ""

    def _gone(self) -> None:
        self.ended = True
        self._forget()
        self.process.wait()
        os.close(self._pidfd)
        for stream in self._said:
            stream.close()

    def _forget(self) -> None:
        """Leave the selector; what has been written stays in the pipes."""
        registered = self._selector.get_map()
        for number in (*(said.fileno() for said in self._said), self._pidfd, self._ready):
            if number in registered:
                self._selector.unregister(number)
        os.close(self._ready)
        os.close(self._order)
