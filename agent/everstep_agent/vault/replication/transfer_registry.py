"""Transfer registry of the serving side: further connections join the transfer they belong to."""

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable

from everstep_agent.concurrency.thread_pool import wait_ended
from everstep_agent.vault.snapshots.copies import CopyKey
from everstep_agent.vault.transfer.connection import BulkConnection, BulkError
from everstep_agent.vault.transfer.messages import (
    JOINED_STREAMS_MAX,
    JoinTransfer,
    TransferJoined,
    transfer_token,
)


class ServedTransfer:
    """One transfer: what each of its connections does, and those that are at it."""

    def __init__(
        self, lineage: str, key: CopyKey, move: Callable[[BulkConnection], Awaitable[None]]
    ) -> None:
        self.lineage = lineage
        self.key = key
        self.nonce = secrets.token_bytes(16)
        self._move = move
        self._seen: set[int] = set()
        self._joined: set[asyncio.Task[None]] = set()

    def admission_problem(
        self, lineage: str, transfer_key: bytes, join: JoinTransfer
    ) -> str | None:
        """Return why a connection is not let in, or None; each number is let in once."""
        expected = transfer_token(transfer_key, self.lineage, self.key, (self.nonce, join.number))
        if lineage != self.lineage or not hmac.compare_digest(expected, join.token):
            return "the token is of another transfer"
        if join.number in self._seen or not 0 < join.number <= JOINED_STREAMS_MAX:
            return "the token was used before"
        self._seen.add(join.number)
        return None

    async def join_connection(self, connection: BulkConnection) -> None:
        """Let a connection do its part. Raises OSError."""
        # Counted before the other end is told, which assigns stripes to it from then on.
        task = asyncio.ensure_future(self._serve_joined(connection))
        self._joined.add(task)
        try:
            await task
        finally:
            self._joined.discard(task)

    async def run(self, connection: BulkConnection) -> None:
        """Do the part of the first connection, and wait for the others. Raises OSError.

        When one fails, all end: what has come by then is there for the next attempt.
        """
        try:
            await self._move(connection)
            while self._joined:
                done, _ = await asyncio.wait(self._joined, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
        finally:
            await self._end()

    async def _serve_joined(self, connection: BulkConnection) -> None:
        await connection.send(TransferJoined())
        await self._move(connection)

    async def _end(self) -> None:
        left = [task for task in self._joined if not task.done()]
        for task in left:
            task.cancel()
        await wait_ended(left)


class TransferRegistry:
    """All transfers that are open here, by nonce."""

    def __init__(self) -> None:
        self._open: dict[bytes, ServedTransfer] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, transfer: ServedTransfer) -> None:
        """Let connections join a transfer."""
        self._open[transfer.nonce] = transfer

    def close(self, transfer: ServedTransfer) -> None:
        """Let none join any more: its tokens are worth nothing from now on."""
        self._open.pop(transfer.nonce, None)

    def find(self, lineage: str, transfer_key: bytes, join: JoinTransfer) -> ServedTransfer:
        """Return the transfer of a connection that may join it. Raises BulkError."""
        transfer = self._open.get(join.nonce)
        if transfer is None:
            raise BulkError("the transfer is over, or never was")
        problem = transfer.admission_problem(lineage, transfer_key, join)
        if problem:
            raise BulkError(problem)
        return transfer
