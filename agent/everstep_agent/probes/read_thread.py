"""Read threads: run blocking reads, quick ones on one thread together, each slow one on its own."""

import asyncio
import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# A healthy read of /proc or /sys takes far less than a millisecond. Whoever is still reading when
# this has passed for the second time keeps the thread, and the others get a new one.
PATIENCE_S = 0.05


class Call(Generic[T]):
    """One read, and the future of whoever waits for it."""

    def __init__(self, read: Callable[[], T], on_slow: Callable[["ReadThread"], None]) -> None:
        self._read = read
        self._values: list[T] = []
        self._error: BaseException | None = None
        self.on_slow = on_slow
        self.answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # Set by the thread: the read is over, whether or not anybody still waits for it.
        self.returned = False

    def run(self) -> None:
        """Read. On the thread."""
        try:
            self._values.append(self._read())
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            self._error = error
        self.returned = True

    def deliver(self) -> None:
        """Give the answer to whoever still waits for it. On the event loop."""
        if self.answer.done():
            return
        if self._error is None:
            self.answer.set_result(self._values[0])
        else:
            self.answer.set_exception(self._error)

    def expire(self, deadline_s: float) -> None:
        """Stop waiting: the read did not return in time. On the event loop."""
        if not self.answer.done():
            self.answer.set_exception(TimeoutError(f"no answer within {deadline_s:g} s"))


class ReadThread:
    """A daemon thread that reads one call after another; one wake-up delivers all that is done."""

    def __init__(self, name: str) -> None:
        self._waiting: queue.SimpleQueue[Call[object] | None] = queue.SimpleQueue()
        self._done: deque[Call[object]] = deque()
        self.reading: Call[object] | None = None
        self.on_delivered: Callable[[], None] = lambda: None
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, call: Call[T]) -> None:
        """Take a read. Event loop only."""
        self._waiting.put(call)  # type: ignore[arg-type]  # whoever waits knows the type

    def end(self) -> None:
        """End the thread when the read that it may be in returns."""
        self._waiting.put(None)

    @property
    def idle(self) -> bool:
        """Return whether it has nothing to read."""
        return self.reading is None and self._waiting.empty()

    def hand_over(self, to: "ReadThread") -> None:
        """Let another thread read what this one has not begun."""
        with contextlib.suppress(queue.Empty):
            while (call := self._waiting.get_nowait()) is not None:
                to.put(call)

    def deliver(self) -> None:
        """Give out the answers that are there. On the event loop."""
        while self._done:
            self._done.popleft().deliver()
        self.on_delivered()

    def _work(self) -> None:
        while (call := self._waiting.get()) is not None:
            self.reading = call
            call.run()
            self._done.append(call)
            self.reading = None
            if self._waiting.empty():
                # The loop may be closed already: then nobody waits.
                with contextlib.suppress(RuntimeError):
                    call.answer.get_loop().call_soon_threadsafe(self.deliver)


class SharedThread:
    """One thread for the reads of many probes, as long as they are quick.

    A read that is not keeps the thread that it is in, for itself; the others go on with a new one.
    So a read that hangs delays the others by at most twice the patience, and once.
    """

    def __init__(self, name: str, patience_s: float = PATIENCE_S) -> None:
        self._name = name
        self.patience_s = patience_s
        self._thread: ReadThread | None = None
        self._seen: object = None
        self._alarm: asyncio.TimerHandle | None = None

    def put(self, call: Call[T]) -> None:
        """Take a read. Event loop only."""
        thread = self._thread = self._thread or self._start()
        thread.put(call)
        if self._alarm is None:
            self._seen = None
            self._set_alarm()

    def _start(self) -> ReadThread:
        thread = ReadThread(self._name)
        thread.on_delivered = self._rest
        return thread

    def _rest(self) -> None:
        if self._alarm is not None and (self._thread is None or self._thread.idle):
            self._alarm.cancel()
            self._alarm = None

    def _set_alarm(self) -> None:
        loop = asyncio.get_running_loop()
        self._alarm = loop.call_later(self.patience_s, self._look_after)

    def _look_after(self) -> None:
        """Replace the thread if it is still in the read that it was in the last time."""
        thread, self._alarm = self._thread, None
        if thread is None:
            return
        # Answers of earlier reads are delivered now, as the next read may hang.
        thread.deliver()
        reading = thread.reading
        if reading is not None and reading is self._seen:
            self._replace(thread, reading)
        self._seen = reading
        if self._thread is not None and not self._thread.idle:
            self._set_alarm()

    def _replace(self, slow: ReadThread, call: Call[object]) -> None:
        slow.on_delivered = lambda: None
        self._thread = self._start()
        slow.hand_over(self._thread)
        call.on_slow(slow)
