"""Process stopping: processes are stopped on purpose, and always continued afterwards."""

import asyncio
import logging
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from everstep_agent.ipc.processes import ProcessIdentity, identify, send_signal

logger = logging.getLogger(__name__)

# Processes stand still for a share of each such period: it is long against the jitter of a training
# step, and short against any watchdog.
_PERIOD_S = 1.0
# How often to look for a process that replaced a stopped one, which must not get to answer.
_LOOK_S = 0.02


def may_stop(pids: Iterable[int]) -> str:
    """Return why these processes cannot be stopped; empty when they can."""
    for pid in pids:
        found = identify(pid)
        try:
            if found is not None:
                send_signal(found, 0)
        except PermissionError:
            return (
                f"process {pid} belongs to another user; the agent needs the capability CAP_KILL "
                "to stop it"
            )
    return ""


def go_on(processes: Iterable[ProcessIdentity]) -> None:
    """Let processes go on, those that are still there."""
    for process in processes:
        with suppress(PermissionError):
            send_signal(process, signal.SIGCONT)


class Watcher(Protocol):
    """Guard that lets stopped processes go on if this process is killed."""

    def note(self, process: ProcessIdentity) -> None:
        """Take care of one more. Raises OSError when it cannot."""
        ...

    async def end(self) -> None:
        """Stop caring."""
        ...


class Stopper:
    """Stops processes until it is cancelled; whoever it stopped goes on at the end."""

    def __init__(self, pids: Callable[[], Iterable[int]], watcher: Watcher) -> None:
        self._pids = pids
        self._watcher = watcher
        self.stopped: set[ProcessIdentity] = set()

    async def slow(self, ratio: float) -> None:
        """Stop them for a share of every second."""
        try:
            while True:
                self._stop_all()
                await asyncio.sleep(_PERIOD_S * ratio)
                self.release()
                await asyncio.sleep(_PERIOD_S * (1 - ratio))
        finally:
            self.release()
            await self._watcher.end()

    async def hold(self) -> None:
        """Keep them stopped, those too that take the place of others."""
        try:
            while True:
                self._stop_all()
                await asyncio.sleep(_LOOK_S)
        finally:
            self.release()
            await self._watcher.end()

    def targets(self) -> tuple[ProcessIdentity, ...]:
        """Return what it stops now and then."""
        found = (identify(pid) for pid in self._pids())
        return tuple({one for one in found if one is not None} | self.stopped)

    def release(self) -> None:
        """Let all go on."""
        go_on(self.stopped)
        self.stopped.clear()

    def _stop_all(self) -> None:
        for pid in self._pids():
            found = identify(pid)
            if found is None or found in self.stopped:
                continue
            try:
                self._watcher.note(found)
                send_signal(found, signal.SIGSTOP)
            except OSError as error:
                logger.warning("process %d cannot be stopped: %s", pid, error)
            else:
                self.stopped.add(found)
