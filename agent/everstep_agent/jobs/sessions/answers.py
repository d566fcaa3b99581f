"""Answer queue: the question of a rank that is being answered, and the signs of life until then."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress

from everstep_agent.concurrency.thread_pool import wait_ended
from everstep_agent.ipc.connection import Connection
from everstep_common.rank_messages import Pending

# Three signs of life in the second for which a rank waits for one.
PENDING_INTERVAL_S = 0.3


class AnswerQueue:
    """The question that is being answered. A process that asks two at once waits for the first.

    An answer that takes longer is preceded by Pending, and held back until the rank awaits it: a
    rank that has gone on without it finds at most one message, and no descriptors under way.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._current: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None
        self._awaited = asyncio.Event()
        # Whether there is nothing to say but the answer itself, if any.
        self._answered = True

    async def begin(self, answer: Coroutine[None, None, None]) -> None:
        """Begin to answer, when the question before has been. Raises OSError if that went wrong."""
        turn = self._connection.take_lease()
        try:
            await self.finish()
        except BaseException:
            answer.close()
            turn.release()
            raise
        self._answered = False
        self.resume()
        self._current = asyncio.create_task(self._answer(answer), name="answer to a rank")
        # A callback, because it also runs for a task that is cancelled before it has begun.
        self._current.add_done_callback(lambda _: turn.release())

    def resume(self) -> None:
        """The rank waits for the answer, or for the next sign of life."""
        self._awaited.set()
        self._stop_timer()
        if not self._answered:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PENDING_INTERVAL_S, self._tell_pending)

    async def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Answer, when the rank waits for it. Raises OSError."""
        self._answered = True
        self._stop_timer()
        await self._awaited.wait()
        if self._telling is not None:
            await asyncio.wait([self._telling])
        await self._connection.send(message, fds)

    async def finish(self) -> None:
        """Return when the last question is answered. Raises OSError when it could not be.

        Who asks the next one, or has hung up, awaits it no longer in any other way.
        """
        self._awaited.set()
        self._stop_timer()
        if self._current is not None:
            await asyncio.shield(self._current)
            self._current = None

    async def cancel(self) -> None:
        """Answer nothing any more."""
        self._stop_timer()
        current, self._current = self._current, None
        tasks = [task for task in (current, self._telling) if task is not None]
        for task in tasks:
            task.cancel()
        await wait_ended(tasks)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # the connection has ended for a reason that is known

    def _tell_pending(self) -> None:
        self._awaited.clear()
        self._telling = asyncio.create_task(self._send_pending(), name="sign of life to a rank")

    async def _send_pending(self) -> None:
        with suppress(OSError):  # whoever receives sees the end of the connection
            await self._connection.send(Pending())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _answer(self, answer: Coroutine[None, None, None]) -> None:
        try:
            await answer
        except BaseException:
            # Ends the receiving side, too: whoever waits there for a message raises this error.
            self._connection.hang_up()
            raise
        finally:
            self._stop_timer()
