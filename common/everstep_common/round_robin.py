"""Round-robin semaphore: some work at once, and owners who wait get one turn after another."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class RoundRobinSemaphore:
    """Semaphore that goes round the owners, however many wait for one of them."""

    def __init__(self, at_once: int) -> None:
        self._free = at_once
        # By owner; the one whose turn is next comes first.
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, owner: int) -> AsyncGenerator[None, None]:
        """Wait for a turn, and have it within the block."""
        await self._take(owner)
        try:
            yield
        finally:
            self._pass_on()

    async def _take(self, owner: int) -> None:
        if self._free:
            self._free -= 1
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(ready)
        try:
            await ready
        except asyncio.CancelledError:
            if ready.done() and not ready.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give a turn to the first who waits of the next owner."""
        while self._waiting:
            owner = next(iter(self._waiting))
            queue = self._waiting.pop(owner)
            ready = queue.popleft()
            if queue:
                self._waiting[owner] = queue
            if not ready.done():
                ready.set_result(None)
                return
        self._free += 1
