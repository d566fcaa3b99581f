"""The storage processes of one job: as many as are at work, and one that waits for more."""

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
# Processes that hang in the kernel, before no more are started: each keeps a copy's memory.
_HUNG_MAX = 4


class StorageWorkerPool:
    """Asks storage as the job's user. Nothing here waits longer than its deadline."""

    def __init__(self, path: str, user: JobUser, silence_s: float, at_once: int) -> None:
        self.user = user
        self._bucket = path.startswith("s3://")
        self.silence_s = silence_s
        self._turns = asyncio.Semaphore(at_once)
        self._idle: StorageWorkerProcess | None = None
        self._gone: list[StorageWorkerProcess] = []
        self._closed = False

    @property
    def idle(self) -> int | None:
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
            clerk = await self._hired()
            try:
                answered = await clerk.ask(request, answer, fds, self.silence_s)
            except StorageRefusedError:
                await self._keep(clerk)
                raise
            except BaseException:
                await self._abandon(clerk)
                raise
            await self._keep(clerk)
            return answered

    async def close(self) -> None:
        """End what is idle; who works is abandoned by the task that asked."""
        self._closed = True
        idle, self._idle = self._idle, None
        if idle is not None:
            self._dismiss(idle)
        if self.hung:
            await asyncio.gather(*(one.leave() for one in self._gone))

    async def _hired(self) -> StorageWorkerProcess:
        idle, self._idle = self._idle, None
        if idle is not None and idle.process.poll() is None:
            return idle
        if self.hung >= _HUNG_MAX:
            raise StorageError(f"{self.hung} processes hang in this path's file system already")
        try:
            clerk = StorageWorkerProcess(self._bucket)
        except OSError as error:
            raise StorageError(f"no storage process could be started: {error}") from error
        try:
            await clerk.become(self.user)
        except BaseException:
            await self._abandon(clerk)
            raise
        return clerk

    async def _keep(self, clerk: StorageWorkerProcess) -> None:
        if self._closed:  # while it was at work
            self._dismiss(clerk)
            await self.close()
        elif self._idle is None:
            self._idle = clerk
        else:
            self._dismiss(clerk)

    def _dismiss(self, clerk: StorageWorkerProcess) -> None:
        clerk.dismiss()
        self._gone.append(clerk)

    async def _abandon(self, clerk: StorageWorkerProcess) -> None:
        self._gone.append(clerk)
        try:
            dead = await clerk.kill()
        except asyncio.CancelledError:
            # Asked to hurry, perhaps because the loop ends: with it ends whoever would reap.
            await clerk.kill()
            raise
        if not dead:
            pid = clerk.process.pid
            logger.warning("storage process %d hangs in the kernel and does not die", pid)
