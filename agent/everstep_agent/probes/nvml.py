"""GPU probe: asks the process that talks to the NVIDIA driver, and replaces it when it hangs."""

import json
import logging
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from everstep_agent.detectors.gpu import GpusReading
from everstep_agent.probes import nvml_child
from everstep_common.codec import CodecError, from_json

logger = logging.getLogger(__name__)

_COMMAND = (sys.executable, "-P", nvml_child.__file__)
# A process in uninterruptible sleep survives SIGKILL and holds its memory: no more than these.
ABANDONED_MAX = 3
_KILL_GRACE_S = 1.0
_ANSWER_BYTES_MAX = 4 << 20


class DriverHangError(TimeoutError):
    """The driver did not answer within its deadline."""


class ProbeError(OSError):
    """The process died or answered nonsense; one sentence says what."""


@dataclass(frozen=True, slots=True)
class NvmlDeadlines:
    """How long the driver may take, in seconds. The first answer includes its initialisation."""

    first_s: float = 30.0
    next_s: float = 5.0
    # Without a driver library: how long until somebody may have installed one.
    absent_retry_s: float = 600.0


class NvmlProbe:
    """Reads all NVIDIA GPUs. Blocks for at most its deadline and a second."""

    def __init__(
        self,
        deadlines: NvmlDeadlines,
        command: tuple[str, ...] = _COMMAND,
        proc: Path = Path("/proc"),
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deadlines = deadlines
        self._command = command
        self._proc = proc
        self._clock_s = clock_s
        self._child: subprocess.Popen[bytes] | None = None
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self._absent: tuple[float, GpusReading] | None = None
        self.replaced = 0

    def read(self) -> GpusReading:
        """Read once. Raises DriverHangError, and ProbeError."""
        if self._absent and self._clock_s() < self._absent[0]:
            return self._absent[1]
        fresh = self._child is None
        child = self._child or self._start()
        try:
            line = self._ask(child, self._deadlines.first_s if fresh else self._deadlines.next_s)
            reading = _decode(line)
        except (OSError, TimeoutError):
            self._end(child)
            self.replaced += 1
            raise
        self._absent = None
        if reading.absent:
            self._end(child)
            self._absent = (self._clock_s() + self._deadlines.absent_retry_s, reading)
        return reading

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._end(self._child)

    def _start(self) -> subprocess.Popen[bytes]:
        self._abandoned = [child for child in self._abandoned if child.poll() is None]
        if len(self._abandoned) >= ABANDONED_MAX:
            raise DriverHangError(
                f"{len(self._abandoned)} processes are stuck in the driver and cannot be killed"
            )
        self._child = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        return self._child

    def _ask(self, child: subprocess.Popen[bytes], deadline_s: float) -> bytes:
        """Send a request and return the line that answers it."""
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(b"\n")
        except BrokenPipeError:
            # It may have said why before it ended.
            logger.debug("the GPU probe's process has closed its input")
        due_s = self._clock_s() + deadline_s
        answer = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(child.stdout, selectors.EVENT_READ)
            while not answer.endswith(b"\n"):
                left_s = due_s - self._clock_s()
                if left_s <= 0 or not selector.select(left_s):
                    raise DriverHangError(f"no answer from the driver within {deadline_s:g} s")
                data = os.read(child.stdout.fileno(), 1 << 16)
                if not data or len(answer) > _ANSWER_BYTES_MAX:
                    raise ProbeError(f"the GPU probe's process ended ({child.poll()})")
                answer += data
        return bytes(answer)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Kill the process; one that cannot die is left to the kernel."""
        self._child = None
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()
        child.kill()
        try:
            child.wait(_KILL_GRACE_S)
        except subprocess.TimeoutExpired:
            self._abandoned.append(child)
            logger.warning("process %d is stuck in state %s", child.pid, self._state(child.pid))

    def _state(self, pid: int) -> str:
        try:
            text = (self._proc / str(pid) / "stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return "unknown"
        return text.rpartition(") ")[2][:1]


def _decode(line: bytes) -> GpusReading:
    try:
        return from_json(GpusReading, json.loads(line))
    except (ValueError, CodecError) as error:
        raise ProbeError(f"the GPU probe's process answered nonsense: {error}") from error
