"""Answers a process's questions one after the other, while what it tells is heard at once."""

import asyncio
from collections.abc import Coroutine

from everstep_agent.concurrency.thread_pool import wait_ended
from everstep_agent.ipc.connection import Connection


class Answering:
    """The question that is being answered. A process that asks two at once waits for the first."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._current: asyncio.Task[None] | None = None

    async def begin(self, answer: Coroutine[None, None, None]) -> None:
        """Begin to answer, when the question before has been. Raises OSError if that went wrong."""
        turn = self._connection.take_lease()
        try:
            await self.over()
        except BaseException:
            answer.close()
            turn.release()
            raise
        self._current = asyncio.create_task(self._answer(answer), name="answer to a rank")
        # Also of one that is cancelled before it has begun.
        self._current.add_done_callback(lambda _: turn.release())

    async def over(self) -> None:
        """Return when the last question is answered. Raises OSError when it could not be."""
        if self._current is not None:
            await asyncio.shield(self._current)
            self._current = None

    async def give_up(self) -> None:
        """Answer nothing any more."""
        current, self._current = self._current, None
        if current is not None:
            current.cancel()
            await wait_ended([current])
            if not current.cancelled():
                current.exception()  # the connection has ended for a reason that is known

    async def _answer(self, answer: Coroutine[None, None, None]) -> None:
        try:
            await answer
        except BaseException:
            # Whoever waits for the next message sees the end of the connection, and then asks why.
            self._connection.hang_up()
            raise
