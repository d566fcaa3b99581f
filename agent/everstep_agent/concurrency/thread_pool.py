"""Thread pool for what would block the event loop: allocating, hashing, copying, moving bytes."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def _nothing() -> None:
    """Most work is short enough to be waited for."""


async def wait_ended(works: Iterable["asyncio.Future[Any]"]) -> None:
    """Return when all have ended, also to one that is cancelled again meanwhile.

    For the way out: what they work on is freed next. Each ends within its own deadline.
    """
    left = {work for work in works if not work.done()}
    while left:
        try:
            _, left = await asyncio.wait(left)
        except asyncio.CancelledError:
            left = {work for work in left if not work.done()}


class ThreadPool:
    """A bounded number of threads; what does not fit waits its turn."""

    def __init__(self, name: str, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    async def run(self, work: Callable[[], T], abort: Callable[[], None] = _nothing) -> T:
        """Do blocking work in a thread; who is cancelled calls ``abort`` and waits for the thread.

        So nothing is freed, closed or reused under a thread that works on it.
        """
        submitted = self._pool.submit(work)
        future = asyncio.wrap_future(submitted)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if not submitted.cancel():
                abort()
                await wait_ended([future])
                future.exception()  # the caller is gone; nobody else will look at it
            raise

    def start(self, work: Callable[[], None], done: Callable[[], None]) -> bool:
        """Begin work that nobody waits for, and call ``done`` on this loop after it.

        Returns False where the threads have ended, or no loop runs.
        """
        try:
            loop = asyncio.get_running_loop()
            submitted = self._pool.submit(work)
        except RuntimeError:
            return False

        def ended(future: "asyncio.Future[None]") -> None:
            if not future.cancelled():
                future.exception()  # it can only be that the memory is gone already
            done()

        asyncio.wrap_future(submitted, loop=loop).add_done_callback(ended)
        return True

    def close(self) -> None:
        """End the threads after what they are doing."""
        self._pool.shutdown(wait=True, cancel_futures=True)
