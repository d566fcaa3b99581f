"""Probe worker: runs the blocking reads of a probe, and abandons one that misses its deadline."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from everstep_agent.probes.read_thread import Call, ReadThread, SharedThread

T = TypeVar("T")


class ProbeWorker:
    """Runs blocking reads in order, on its own thread or on that of the quick reads.

    A read of a dying disk or driver can block in the kernel for ever. Then only its thread is lost:
    every further call fails at once until the read returns.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._last: Call[object] | None = None
        self._shared: SharedThread | None = None
        self._own: ReadThread | None = None

    def share(self, thread: SharedThread) -> None:
        """Read on a common thread as long as the reads are quick."""
        self._shared = thread

    async def call(self, read: Callable[[], T], deadline_s: float) -> T:
        """Return what ``read`` returns. Raises TimeoutError, and whatever ``read`` raises."""
        if self._last is not None and not self._last.returned:
            raise TimeoutError(f"{self._name}: an earlier read has not returned yet")
        call = Call(read, self._keep)
        self._last = call  # type: ignore[assignment]  # only asked whether it has returned
        self._thread().put(call)
        loop = asyncio.get_running_loop()
        alarm, began = loop.call_later(deadline_s, call.expire, deadline_s), loop.time()
        try:
            return await call.answer
        finally:
            alarm.cancel()
            self._settle(call.returned, loop.time() - began)

    def close(self) -> None:
        """End the thread when the read that it may be in returns; it serves nobody after that."""
        if self._own is not None:
            self._own.end()

    def _thread(self) -> ReadThread | SharedThread:
        if self._own is None and self._shared is not None:
            return self._shared
        self._own = self._own or ReadThread(self._name)
        return self._own

    def _keep(self, thread: ReadThread) -> None:
        """Keep the common thread, which this probe's read does not leave in time."""
        self._own = thread

    def _settle(self, returned: bool, took_s: float) -> None:
        """Go back to the common thread after a read that was quick on the own one."""
        shared, own = self._shared, self._own
        if returned and shared is not None and own is not None and took_s < shared.patience_s:
            self._own = None
            own.end()
