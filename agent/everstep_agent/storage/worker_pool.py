"""Storage workers of one job: as many as are busy, and one that waits for more."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TypeVar

from everstep_agent.storage.worker_process import (
    JobUser,
    StorageError,
    StorageRefusedError,
    StorageWorkerProcess,
)

logger = logging.getLogger(__name__)
T = TypeVar("T")
# No more workers are started while this many hang in the kernel: each holds a copy's memory.
_HUNG_MAX = 4


class StorageWorkerPool:
    """Workers with the rights of a job's user. Nothing waits longer than its deadline."""

    def __init__(self, path: str, user: JobUser, stall_s: float, at_once: int) -> None:
        self.user = user
        self._bucket = path.startswith("s3://")
        self.stall_s = stall_s
        self._turns = asyncio.Semaphore(at_once)
        self._idle: StorageWorkerProcess | None = None
        self._gone: list[StorageWorkerProcess] = []
        self._closed = False

    @property
    def idle_pid(self) -> int | None:
        """Return the process that waits for more, if one does."""
        return self._idle.process.pid if self._idle else None

    @property
    def hung(self) -> int:
        """Return how many processes were killed and do not die."""
        self._gone = [one for one in self._gone if one.process.poll() is None]
        return len(self._gone)

    async def ask(self, request: object, answer: type[T], fds: Sequence[int] = ()) -> T:
        """Return the answer to one request. Raises StorageError."""
        async with self._turns:
            worker = await self._take_worker()
            try:
                answered = await worker.ask(request, answer, fds, self.stall_s)
            except StorageRefusedError:
                await self._return_worker(worker)
                raise
            except BaseException:
                await self._abandon(worker)
                raise
            await self._return_worker(worker)
            return answered

    async def close(self) -> None:
        """End what is idle; who works is abandoned by the task that asked."""
        self._closed = True
        idle, self._idle = self._idle, None
        if idle is not None:
            self._dismiss(idle)
        if self.hung:
            await asyncio.gather(*(one.wait_exit() for one in self._gone))

    async def _take_worker(self) -> StorageWorkerProcess:
        idle, self._idle = self._idle, None
        if idle is not None:
            if idle.process.poll() is None:
                return idle
            self._dismiss(idle)  # it was killed
        if self.hung >= _HUNG_MAX:
            raise StorageError(f"{self.hung} processes hang in this path's file system already")
        try:
            worker = StorageWorkerProcess(self._bucket)
        except OSError as error:
            raise StorageError(f"no storage worker could be started: {error}") from error
        try:
            await worker.assume_user(self.user)
        except BaseException:
            await self._abandon(worker)
            raise
        return worker

    async def _return_worker(self, worker: StorageWorkerProcess) -> None:
        if self._closed:  # while it was at work
            self._dismiss(worker)
            await self.close()
        elif self._idle is None:
            self._idle = worker
        else:
            self._dismiss(worker)

    def _dismiss(self, worker: StorageWorkerProcess) -> None:
        worker.dismiss()
        self._gone.append(worker)

    async def _abandon(self, worker: StorageWorkerProcess) -> None:
        self._gone.append(worker)
        try:
            dead = await worker.kill()
        except asyncio.CancelledError:
            # Perhaps because the event loop ends: then nobody would reap the process later.
            await worker.kill()
            raise
        if not dead:
            pid = worker.process.pid
            logger.warning("storage worker %d hangs in the kernel and does not die", pid)
