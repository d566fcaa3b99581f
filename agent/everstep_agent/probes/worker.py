"""One thread for one probe: a read that misses its deadline is abandoned, not waited for."""

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class ProbeWorker:
    """Runs blocking reads one after another on a daemon thread of its own.

    A read of a dying disk or driver can block in the kernel for ever. Then only this thread is
    lost: every further call fails at once until the read returns.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._running: Future[object] | None = None
        self._thread: threading.Thread | None = None

    async def call(self, read: Callable[[], T], deadline_s: float) -> T:
        """Return what ``read`` returns. Raises TimeoutError, and whatever ``read`` raises."""
        if self._running is not None and not self._running.done():
            raise TimeoutError(f"{self._name}: an earlier read has not returned yet")
        self._start()
        outcome: Future[object] = Future()
        outcome.set_running_or_notify_cancel()
        self._running = outcome
        values: list[T] = []

        def work() -> None:
            try:
                values.append(read())
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                outcome.set_exception(error)
            else:
                outcome.set_result(None)

        self._calls.put(work)
        timeout = asyncio.timeout(deadline_s)
        try:
            async with timeout:
                await asyncio.shield(asyncio.wrap_future(outcome))
        except TimeoutError as error:
            if not timeout.expired():
                # The read's own: it has a deadline as well, and says more.
                raise
            raise TimeoutError(f"no answer within {deadline_s:g} s") from error
        return values[0]

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        while True:
            self._calls.get()()
