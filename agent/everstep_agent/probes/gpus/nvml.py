"""GPU probe: asks the process that talks to the NVIDIA driver, and replaces it when it hangs."""

import contextlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from everstep_agent.detectors.gpus.reading import GpuEvent, GpusReading
from everstep_agent.ipc.line_process import Exits, LineProcess, PidfdExits, where_it_waits
from everstep_agent.probes.gpus import nvml_child
from everstep_agent.probes.gpus.nvml_conversation import Conversation
from everstep_agent.probes.gpus.nvml_conversation import ProbeError as ProbeError

_COMMAND = (sys.executable, "-P", nvml_child.__file__)
# Values that change in minutes are read every so many looks.
COMPLETE_EVERY = 10
_KILL_GRACE_S = 1.0
# nvmlReturn_t LIBRARY_NOT_FOUND: there is no driver; every other error comes from one.
_NO_LIBRARY = 12


class DriverHangError(TimeoutError):
    """The driver did not answer within its deadline."""


@dataclass(frozen=True, slots=True)
class NvmlDeadlines:
    """Deadlines of the driver, in seconds. The first answer includes its initialisation."""

    first_s: float = 30.0
    next_s: float = 5.0
    # Without a driver library: how long until somebody may have installed one.
    absent_retry_s: float = 600.0
    # With one that cannot start: it may be loading, or be upgraded.
    broken_retry_s: float = 30.0
    # A GPU that was reset is seen only by a process that was started after it.
    renew_s: float = 60.0


class NvmlProbe:
    """Probe of all NVIDIA GPUs, on the event loop, within its deadlines."""

    def __init__(
        self,
        deadlines: NvmlDeadlines,
        command: tuple[str, ...] = _COMMAND,
        proc: Path = Path("/proc"),
        exits: Exits | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deadlines = deadlines
        self._command = command
        self._proc = proc
        self._exits = exits or PidfdExits()
        self._clock_s = clock_s
        self._talk: Conversation | None = None
        # A process that was killed and may still exist: no other is started before it is gone.
        self._leaving: LineProcess | None = None
        self._absent: tuple[float, GpusReading] | None = None
        self._numbers = itertools.count(1)
        self._looks = itertools.count()
        self._complete_next = False
        self._failures, self._failure, self._not_before_s = 0, "", 0.0
        self.on_event: Callable[[GpuEvent], None] = lambda _: None
        self.replaced = 0

    @property
    def stuck_pid(self) -> int | None:
        """Return the process that was killed and is not gone yet."""
        return self._leaving.process.pid if self._leaving else None

    @property
    def pid(self) -> int | None:
        """Return the process that talks to the driver now."""
        return self._talk.child.process.pid if self._talk else None

    def complete_soon(self) -> None:
        """Have everything read at the next look, also what is read more rarely."""
        self._complete_next = True

    async def read(self) -> GpusReading:
        """Read once. Raises DriverHangError, and ProbeError."""
        complete = next(self._looks) % COMPLETE_EVERY == 0 or self._complete_next
        reading = await self._read(complete)
        self._complete_next = self._complete_next and not reading.complete
        return reading

    async def read_aside(self) -> GpusReading:
        """Read all, for somebody else than the detectors. Raises DriverHangError, and ProbeError.

        What they have asked to be read completely still is, at their next look.
        """
        return await self._read(complete=True)

    async def _read(self, complete: bool) -> GpusReading:
        if self._absent and self._clock_s() < self._absent[0]:
            return self._absent[1]
        talk = self._talk or await self._start()
        try:
            reading = await talk.ask(next(self._numbers), complete, self._deadline_s(talk))
        except TimeoutError as error:
            why = where_it_waits(self._proc, talk.child.process.pid)
            waited_s = self._deadlines.next_s if talk.answered else self._deadlines.first_s
            self._replace(talk)
            said = f"no answer from the driver within {waited_s:g} s; {why}"
            raise DriverHangError(said) from error
        except ProbeError as error:
            self._replace(talk)
            self._pause(error)
            raise
        if reading.absent:
            return await self._note_absence(reading)
        self._absent, self._failures = None, 0
        return self._taken(talk, reading)

    def close(self) -> None:
        """End the process."""
        self._end()
        if self._leaving is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._leaving.process.wait(_KILL_GRACE_S)

    async def _start(self) -> Conversation:
        if self._clock_s() < self._not_before_s:
            raise ProbeError(f"{self._failure}; it failed {self._failures} times")
        if self._leaving is not None:
            child = self._leaving.process
            if not await self._exits.within(child, _KILL_GRACE_S):
                where = where_it_waits(self._proc, child.pid)
                raise DriverHangError(f"stuck in the driver, and cannot be killed: {where}")
            self._leaving = None
        if self._talk is not None:
            # Somebody else has waited as well, and was first.
            return self._talk
        self._talk = Conversation(self._command, self._clock_s(), lambda e: self.on_event(e))
        return self._talk

    def _deadline_s(self, talk: Conversation) -> float:
        if talk.answered:
            return self._deadlines.next_s
        # The first answer has its own deadline, however often somebody stopped waiting for it.
        left_s = talk.started_s + self._deadlines.first_s - self._clock_s()
        return max(left_s, 0.0)

    async def _note_absence(self, reading: GpusReading) -> GpusReading:
        """Keep the answer for a while, and no process for it."""
        missing = reading.absent_code in (None, _NO_LIBRARY)
        wait_s = self._deadlines.absent_retry_s if missing else self._deadlines.broken_retry_s
        self._absent = (self._clock_s() + wait_s, reading)
        self._end()
        if self._leaving and await self._exits.within(self._leaving.process, _KILL_GRACE_S):
            self._leaving = None
        return reading

    def _taken(self, talk: Conversation, reading: GpusReading) -> GpusReading:
        lost = any(gpu.error for gpu in reading.gpus)
        if lost and self._clock_s() - talk.started_s > self._deadlines.renew_s:
            self._end()
        if not reading.complete:
            return reading
        pids = [process.pid for gpu in reading.gpus for process in gpu.processes or ()]
        return replace(reading, dead_pids=dead_processes(self._proc, pids))

    def _pause(self, error: ProbeError) -> None:
        """Start no process for a while, longer each time: a start costs as much as 60 looks."""
        self._failures += 1
        self._failure = str(error)
        wait_s = 2.0 ** min(self._failures, 10) if self._failures > 1 else 0.0
        self._not_before_s = self._clock_s() + min(wait_s, self._deadlines.broken_retry_s)

    def _replace(self, talk: Conversation) -> None:
        """End the process that failed, unless somebody else who asked it has done so."""
        if self._talk is talk:
            self._end()
            self.replaced += 1

    def _end(self) -> None:
        if self._talk is not None:
            self._talk.child.kill()
            self._leaving, self._talk = self._talk.child, None


# PROC_PID_INIT_INO, include/linux/proc_ns.h: the namespace in which the driver counts processes.
_FIRST_NAMESPACE = "pid:[4026531836]"


def dead_processes(proc: Path, pids: Iterable[int]) -> tuple[int, ...] | None:
    """Return which of them do not exist; None where this agent sees other pids than the driver."""
    try:
        if os.readlink(proc / "self/ns/pid") != _FIRST_NAMESPACE:
            return None
    except OSError:
        return None
    return tuple(sorted({pid for pid in pids if not (proc / str(pid)).exists()}))
