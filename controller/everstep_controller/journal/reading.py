"""Journal reads: questions to the journal while its controller serves, in a thread with a deadline.

A disk or a database that does not answer holds up whoever asks, and never the event loop.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from everstep_controller.journal.port import JournalAccessError, JournalReader

T = TypeVar("T")

# A read takes milliseconds; a database that is gone is known after 12 s (postgres/connection.py).
_DEADLINE_S = 15.0


class JournalReads:
    """One thread with one connection, which is made when somebody asks first."""

    def __init__(
        self, open_reader: Callable[[], JournalReader], deadline_s: float = _DEADLINE_S
    ) -> None:
        self._open_reader = open_reader
        self._deadline_s = deadline_s
        self._thread = ThreadPoolExecutor(1, "journal reads")
        self._reader: JournalReader | None = None

    async def ask(self, question: Callable[[JournalReader], T]) -> T:
        """Return what a question answers, wholly read. Raises JournalAccessError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._deadline_s):
                return await loop.run_in_executor(self._thread, self._answer, question)
        except TimeoutError as error:
            raise JournalAccessError(
                f"the journal has not answered for {self._deadline_s:g} s; its disk or database "
                "hangs, see 'everstep findings'"
            ) from error

    async def close(self) -> None:
        """Close the connection, unless the journal hangs."""
        closing = asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        await asyncio.wait([closing], timeout=1.0)
        self._thread.shutdown(wait=False)

    def _answer(self, question: Callable[[JournalReader], T]) -> T:
        if self._reader is None:
            self._reader = self._open_reader()
        return question(self._reader)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
