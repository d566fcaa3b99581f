"""Vendor tool: runs a command in its own process, with a deadline and bounded output."""

import contextlib
import logging
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from everstep_agent.probes.accelerators.text import first_line
from everstep_agent.probes.accelerators.vendors import command_path
from everstep_common.process_priority import raise_oom_score

logger = logging.getLogger(__name__)

_KILL_GRACE_S = 1.0
# Sixteen devices fill 6 KB with the most talkative of the tools.
_OUTPUT_BYTES_MAX = 1 << 20
_READ_BYTES = 1 << 16
# The kernel kills the agent last when memory is short; a tool that it starts must not inherit that.
_OOM_SCORE = 500


class ToolHangError(TimeoutError):
    """The command did not end within its deadline."""


class ToolError(OSError):
    """The command could not be started or failed; one sentence says why."""


@dataclass(slots=True)
class Tool:
    """One command by name, looked for in PATH and where its vendor installs it.

    Its runs are serial. A process that survives SIGKILL is in uninterruptible sleep: it is
    abandoned, and no other is started before it has ended.
    """

    name: str
    folders: tuple[str, ...] = ()
    deadline_s: float = 20.0
    # Where to look instead of PATH; for tests.
    path: str | None = None
    clock_s: Callable[[], float] = time.monotonic
    _abandoned: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def found(self) -> str:
        """Return where the command is; empty when it is not installed."""
        return command_path(self.name, self.folders, self.path)

    def run(self, *arguments: str) -> str:
        """Return what the command prints. Raises ToolHangError and ToolError."""
        command = self.found()
        if not command:
            raise ToolError(f"{self.name}: not installed")
        return self.execute((command, *arguments))

    def execute(self, command: tuple[str, ...]) -> str:
        """Run an argument list. Raises ToolHangError and ToolError."""
        if self._abandoned is not None and self._abandoned.poll() is None:
            raise ToolHangError(f"{self.name}: an earlier call is stuck and cannot be killed")
        self._abandoned = None
        title = " ".join((self.name, *command[1:]))
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                env=_environment(os.environ),
            )
        except OSError as error:
            raise ToolError(f"{title}: {error.strerror or error}") from error
        _expendable(child.pid)
        try:
            output, complaint = self._collect(child, title)
        finally:
            self._end(child)
        if child.returncode:
            said = _complaint(complaint) or first_line(output)
            raise ToolError(f"{title}: exit status {child.returncode}: {said}")
        return output

    def _collect(self, child: subprocess.Popen[bytes], title: str) -> tuple[str, str]:
        """Return both streams when both are closed and the process has ended."""
        assert child.stdout is not None
        assert child.stderr is not None
        due_s = self.clock_s() + self.deadline_s
        streams: dict[IO[bytes], bytearray] = {child.stdout: bytearray(), child.stderr: bytearray()}
        with selectors.DefaultSelector() as selector:
            for stream in streams:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                if (left_s := due_s - self.clock_s()) <= 0:
                    raise ToolHangError(f"{title}: no answer within {self.deadline_s:g} s")
                for key, _ in selector.select(left_s):
                    data = os.read(key.fd, _READ_BYTES)
                    if not data:
                        selector.unregister(key.fileobj)
                    streams[child.stdout if key.fileobj is child.stdout else child.stderr] += data
                if any(len(stream) > _OUTPUT_BYTES_MAX for stream in streams.values()):
                    raise ToolError(f"{title}: more than {_OUTPUT_BYTES_MAX} bytes of output")
        try:
            child.wait(max(0.0, due_s - self.clock_s()))
        except subprocess.TimeoutExpired as error:
            raise ToolHangError(f"{title}: does not end within {self.deadline_s:g} s") from error
        output, complaint = (bytes(text).decode(errors="replace") for text in streams.values())
        return output, complaint

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Close the pipes, and kill the command with what it has started."""
        for pipe in (child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
        if child.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
        try:
            child.wait(_KILL_GRACE_S)
        except subprocess.TimeoutExpired:
            self._abandoned = child
            logger.warning("%s: process %d cannot be killed", self.name, child.pid)


def _complaint(text: str) -> str:
    """Return what says most: the first line, or the last of a Python program's traceback."""
    lines = text.strip().splitlines()
    return first_line(lines[-1] if lines and lines[0].startswith("Traceback") else text)


def _expendable(pid: int) -> None:
    """Let the kernel take a tool before the work of this node."""
    try:
        raise_oom_score(_OOM_SCORE, Path(f"/proc/{pid}"))
    except (FileNotFoundError, ProcessLookupError):
        return  # it has ended already
    except OSError as error:
        logger.warning("process %d is protected as the agent is: oom_score_adj: %s", pid, error)


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the agent's environment with English output and without colours."""
    return {**inherited, "LC_ALL": "C.UTF-8", "LANGUAGE": "C", "NO_COLOR": "1", "TERM": "dumb"}
