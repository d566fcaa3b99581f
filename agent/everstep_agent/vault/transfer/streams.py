"""The connections of one transfer, on the side that opened it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from everstep_agent.concurrency.thread_pool import ended
from everstep_agent.vault.snapshots.copies import CopyKey
from everstep_agent.vault.transfer.connection import Wire
from everstep_agent.vault.transfer.engine import Mover
from everstep_agent.vault.transfer.messages import JOINED_MAX, Join, Joined, transfer_token
from everstep_agent.vault.transfer.remote_agent import Remote, answer, connect
from everstep_agent.vault.transfer.stripes import useful_streams

logger = logging.getLogger(__name__)
Move = Callable[[Wire], Awaitable[None]]


class Streams:
    """The connections of one transfer."""

    def __init__(self, remote: Remote, key: CopyKey, nonce: bytes, mover: Mover) -> None:
        self._remote = remote
        self._key = key
        self._nonce = nonce
        self._mover = mover

    async def run(self, first: Wire, size_bytes: int, move: Move) -> None:
        """Move a copy over the first connection and more. Raises OSError when any is cut."""
        streams = min(self._mover.streams, JOINED_MAX + 1)
        more = range(1, useful_streams(streams, size_bytes))
        works = [self._joined(number, move) for number in more]
        await _all_of([_only(move, first), *works])

    async def _joined(self, number: int, move: Move) -> None:
        try:
            wire = await self._join(number)
        except OSError as error:  # the others carry everything
            logger.info("stream %d to %s: %s", number, self._remote.address, error or "no answer")
            return
        try:
            await move(wire)
        finally:
            wire.close()

    async def _join(self, number: int) -> Wire:
        remote, join = self._remote, (self._nonce, number)
        wire = await connect(remote, self._mover.timeout_s)
        try:
            token = transfer_token(remote.transfer_key, remote.job, self._key, join)
            await wire.send(Join(self._nonce, number, token))
            await answer(wire, self._mover.timeout_s, Joined)
        except BaseException:
            wire.close()
            raise
        return wire


async def _only(move: Move, wire: Wire) -> None:
    await move(wire)


async def _all_of(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all of it at once; when one fails, the others end before its error is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await ended(tasks)
