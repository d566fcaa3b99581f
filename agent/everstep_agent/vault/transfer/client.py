"""Stores replicas on other agents, and fetches copies and their manifests from them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from everstep_agent.concurrency.thread_pool import ended
from everstep_agent.concurrency.time_slices import slowly
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyFacts, CopyKey
from everstep_agent.vault.snapshots.manifest import checked_in_parts
from everstep_agent.vault.transfer.connection import BulkError, Wire
from everstep_agent.vault.transfer.engine import Departure, Mover, Queue
from everstep_agent.vault.transfer.incoming_copy import Arrival
from everstep_agent.vault.transfer.messages import (
    JOINED_MAX,
    PROTOCOL,
    Accept,
    Get,
    Join,
    Joined,
    Manifest,
    Manifests,
    Mismatch,
    Offer,
    Put,
    Sorry,
    Stored,
    transfer_token,
)
from everstep_agent.vault.transfer.receive_buffers import Arrivals, Expected
from everstep_agent.vault.transfer.remote_agent import RefusedError, Remote, answer, connect
from everstep_agent.vault.transfer.stripes import absent, useful_streams

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


# The other agent may first wait for an earlier attempt to end, allocate, or read a file.
_PATIENCE = 4


class MismatchError(BulkError):
    """The bytes that arrived are not those that were hashed."""


async def put(remote: Remote, facts: CopyFacts, region: Region, mover: Mover) -> None:
    """Store a replica; returns when the other agent has acknowledged the hash. Raises OSError.

    RefusedError when it does not want it, MismatchError when the bytes arrived changed. What a cut
    attempt has brought is not sent again by the next one.
    """
    wire = await connect(remote, mover.timeout_s)
    try:
        key, size = facts.key, facts.size_bytes
        await wire.send(
            Put(key.generation, key.rank, key.step, size, facts.root_hash, facts.entries, PROTOCOL)
        )
        said = await answer(wire, _PATIENCE * mover.timeout_s, Accept, Stored)
        if isinstance(said, Accept):
            departure = Departure(region, Queue(absent(said.present, size)))
            streams = Streams(remote, key, said.nonce, mover)
            await streams.run(wire, size, lambda one: mover.send(one, departure))
            said = await answer(wire, _PATIENCE * mover.timeout_s, Stored, Mismatch)
        if not isinstance(said, Stored) or said.root_hash != facts.root_hash:
            raise MismatchError(f"{facts.key} arrived changed at {remote.address}")
    finally:
        wire.close()


async def get(
    remote: Remote, expected: Expected, arrivals: Arrivals, mover: Mover
) -> tuple[CopyFacts, Region]:
    """Fetch a copy, verified and frozen. Raises OSError, and MemoryShortError.

    MismatchError for one whose bytes are wrong, SlowError below the mover's floor. What a cut
    attempt has brought is not fetched again by the next one, from whomever.
    """
    wire = await connect(remote, mover.timeout_s)
    try:
        await wire.send(_get(expected))
        offer = await answer(wire, _PATIENCE * mover.timeout_s, Offer)
        assert isinstance(offer, Offer)
        facts = await _checked(Manifest(offer.size_bytes, offer.root_hash, offer.entries), expected)
        arrival = await arrivals.open(expected, f"everstep-fetched-{expected.key.rank}")
        arrival.watch = mover.floor.watch() if mover.floor else None
        try:
            await wire.send(Accept(arrival.present()))
            streams = Streams(remote, expected.key, offer.nonce, mover)
            size = expected.size_bytes
            await streams.run(wire, size, lambda one: mover.receive(one, arrival))
            if not arrival.complete():
                raise BulkError("the copy was cut short")
        except BaseException:
            arrivals.put_by(arrival)
            raise
        return facts, await _proven(wire, arrival, arrivals, mover)
    finally:
        wire.close()


async def manifests(
    remote: Remote, copies: Sequence[Expected], timeout_s: float
) -> dict[CopyKey, CopyFacts]:
    """Return what is in those of the copies that the other agent has. Raises OSError."""
    wire = await connect(remote, timeout_s)
    found = {}
    try:
        await wire.send(Manifests(tuple(map(_get, copies))))
        for expected in copies:
            async with asyncio.timeout(_PATIENCE * timeout_s):
                said = await wire.receive(Manifest, Sorry)
            if isinstance(said, Manifest):
                found[expected.key] = await _checked(said, expected)
    finally:
        wire.close()
    return found


async def _proven(wire: Wire, arrival: Arrival, arrivals: Arrivals, mover: Mover) -> Region:
    root_hash = arrival.root()
    region = arrivals.take(arrival)
    try:
        if root_hash != arrival.root_hash:
            await wire.send(Mismatch(root_hash))
            raise MismatchError(f"{arrival.key} arrived changed")
        await wire.send(Stored(root_hash))
        await mover.workers.run(region.freeze)  # the kernel looks at every page
        region.proven = root_hash
    except BaseException:
        region.drop()
        raise
    return region


def _get(expected: Expected) -> Get:
    key = expected.key
    return Get(key.generation, key.rank, key.step, expected.size_bytes, expected.root_hash)


async def _checked(found: Manifest, expected: Expected) -> CopyFacts:
    key = expected.key
    if (found.root_hash, found.size_bytes) != (expected.root_hash, expected.size_bytes):
        raise RefusedError(f"the copy of {key} that is there is a different one")
    checked = await slowly(checked_in_parts(found.entries, found.size_bytes))
    if checked.problem:
        raise RefusedError(f"the manifest of {key} is wrong: {checked.problem}")
    return CopyFacts(key, found.size_bytes, found.root_hash, found.entries)
