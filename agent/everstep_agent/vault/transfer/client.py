"""Client of other agents: stores replicas there, fetches copies and their manifests from there."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from everstep_agent.concurrency.thread_pool import wait_ended
from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest, CopyRef
from everstep_agent.vault.snapshots.manifest import check_in_parts
from everstep_agent.vault.snapshots.member_words import StepWord
from everstep_agent.vault.transfer.connection import BulkConnection, BulkError
from everstep_agent.vault.transfer.engine import OutgoingCopy, StripeQueue, TransferEngine
from everstep_agent.vault.transfer.incoming_copy import IncomingCopy
from everstep_agent.vault.transfer.messages import (
    JOINED_STREAMS_MAX,
    PROTOCOL,
    AllSteps,
    CopyOffer,
    CopyStored,
    GetCopy,
    GetManifests,
    HashMismatch,
    JoinTransfer,
    ManifestReply,
    PutCopy,
    Refusal,
    SendStripes,
    TellSteps,
    TransferJoined,
    transfer_token,
)
from everstep_agent.vault.transfer.receive_buffers import ReceiveBuffers
from everstep_agent.vault.transfer.remote_agent import (
    RemoteAgent,
    TransferRefusedError,
    connect,
    receive_answer,
)
from everstep_agent.vault.transfer.stripes import missing_stripes, useful_streams

logger = logging.getLogger(__name__)
MoveStripes = Callable[[BulkConnection], Awaitable[None]]

# An answer may take this many times as long as a transfer may stand still: the other agent may have
# to wait for an earlier attempt to end, to allocate, or to read a file.
_PATIENCE = 4


class TransferStreams:
    """The connections of one transfer."""

    def __init__(
        self, remote: RemoteAgent, key: CopyKey, nonce: bytes, engine: TransferEngine
    ) -> None:
        self._remote = remote
        self._key = key
        self._nonce = nonce
        self._mover = engine

    async def run(self, first: BulkConnection, size_bytes: int, move: MoveStripes) -> None:
        """Move a copy over the first connection and more. Raises OSError when any is cut."""
        streams = min(self._mover.streams, JOINED_STREAMS_MAX + 1)
        more = range(1, useful_streams(streams, size_bytes))
        works = [self._joined(number, move) for number in more]
        await _all_of([_only(move, first), *works])

    async def _joined(self, number: int, move: MoveStripes) -> None:
        try:
            connection = await self._join(number)
        except OSError as error:  # the others carry everything
            logger.info("stream %d to %s: %s", number, self._remote.address, error or "no answer")
            return
        try:
            await move(connection)
        finally:
            connection.close()

    async def _join(self, number: int) -> BulkConnection:
        remote, join = self._remote, (self._nonce, number)
        connection = await connect(remote, self._mover.timeout_s)
        try:
            token = transfer_token(remote.transfer_key, remote.lineage, self._key, join)
            await connection.send(JoinTransfer(self._nonce, number, token))
            await receive_answer(connection, self._mover.timeout_s, TransferJoined)
        except BaseException:
            connection.close()
            raise
        return connection


async def _only(move: MoveStripes, connection: BulkConnection) -> None:
    await move(connection)


async def _all_of(works: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Do all of it at once; when one fails, the others end before its error is raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await wait_ended(tasks)


class MismatchError(BulkError):
    """The bytes that arrived are not those that were hashed."""


async def put_copy(
    remote: RemoteAgent, manifest: CopyManifest, region: Region, engine: TransferEngine
) -> bool:
    """Store a replica; returns when the other agent has acknowledged the hash. Raises OSError.

    False: it was there already, and nothing was sent. TransferRefusedError when it is not wanted
    there, MismatchError when the bytes arrived changed. What a cut attempt has brought is not sent
    again by the next one.
    """
    connection = await connect(remote, engine.timeout_s)
    try:
        key, size = manifest.key, manifest.size_bytes
        await connection.send(PutCopy(manifest.ref, manifest.entries, PROTOCOL))
        said = await receive_answer(
            connection, _PATIENCE * engine.timeout_s, SendStripes, CopyStored
        )
        sent = isinstance(said, SendStripes)
        if isinstance(said, SendStripes):
            outgoing = OutgoingCopy(region, StripeQueue(missing_stripes(said.present, size)))
            streams = TransferStreams(remote, key, said.nonce, engine)
            await streams.run(connection, size, lambda one: engine.send(one, outgoing))
            said = await receive_answer(
                connection, _PATIENCE * engine.timeout_s, CopyStored, HashMismatch
            )
        if not isinstance(said, CopyStored) or said.root_hash != manifest.root_hash:
            raise MismatchError(f"{manifest.key} arrived changed at {remote.address}")
        return sent
    finally:
        connection.close()


async def get_copy(
    remote: RemoteAgent, expected: CopyRef, buffers: ReceiveBuffers, engine: TransferEngine
) -> tuple[CopyManifest, Region]:
    """Fetch a copy, verified and frozen. Raises OSError, and MemoryShortError.

    MismatchError for one whose bytes are wrong, SlowSourceError below the engine's minimum rate.
    What a cut attempt has brought is not fetched again by the next one, from whomever.
    """
    connection = await connect(remote, engine.timeout_s)
    try:
        await connection.send(GetCopy(expected))
        offer = await receive_answer(connection, _PATIENCE * engine.timeout_s, CopyOffer)
        assert isinstance(offer, CopyOffer)
        manifest = await _checked(ManifestReply(offer.copy, offer.entries), expected)
        incoming = await buffers.open_copy(expected, f"everstep-fetched-{expected.key.rank}")
        incoming.watch = engine.min_rate.start_watch() if engine.min_rate else None
        try:
            await connection.send(SendStripes(incoming.received_bitmap()))
            streams = TransferStreams(remote, expected.key, offer.nonce, engine)
            size = expected.size_bytes
            await streams.run(connection, size, lambda one: engine.receive(one, incoming))
            if not incoming.is_complete():
                raise BulkError("the copy was cut short")
        except BaseException:
            buffers.keep_partial(incoming)
            raise
        return manifest, await _proven(connection, incoming, buffers, engine)
    finally:
        connection.close()


async def get_manifests(
    remote: RemoteAgent, copies: Sequence[CopyRef], timeout_s: float
) -> dict[CopyKey, CopyManifest]:
    """Return what is in those of the copies that the other agent has. Raises OSError."""
    connection = await connect(remote, timeout_s)
    found = {}
    try:
        await connection.send(GetManifests(tuple(copies)))
        for expected in copies:
            async with asyncio.timeout(_PATIENCE * timeout_s):
                said = await connection.receive(ManifestReply, Refusal)
            if isinstance(said, ManifestReply):
                found[expected.key] = await _checked(said, expected)
    finally:
        connection.close()
    return found


async def tell_steps(remote: RemoteAgent, told: TellSteps, timeout_s: float) -> StepWord | None:
    """Tell a member which steps there are here, and below; return its word of all. Raises OSError.

    TransferRefusedError where it takes none: a controller is there, or another generation.
    """
    connection = await connect(remote, timeout_s)
    try:
        await connection.send(told)
        said = await receive_answer(connection, timeout_s, AllSteps)
        assert isinstance(said, AllSteps)
        return said.word
    finally:
        connection.close()


async def _proven(
    connection: BulkConnection,
    incoming: IncomingCopy,
    buffers: ReceiveBuffers,
    engine: TransferEngine,
) -> Region:
    root_hash = incoming.received_root_hash()
    region = buffers.take_region(incoming)
    try:
        if root_hash != incoming.copy.root_hash:
            await connection.send(HashMismatch(root_hash))
            raise MismatchError(f"{incoming.copy.key} arrived changed")
        await connection.send(CopyStored(root_hash))
        await engine.threads.run(region.freeze)  # the kernel looks at every page
        region.verified_hash = root_hash
    except BaseException:
        region.release()
        raise
    return region


async def _checked(found: ManifestReply, expected: CopyRef) -> CopyManifest:
    key, size = expected.key, expected.size_bytes
    if found.copy != expected:
        raise TransferRefusedError(f"the copy of {key} that is there is a different one")
    checked = await run_in_slices(check_in_parts(found.entries, size))
    if checked.problem:
        raise TransferRefusedError(f"the manifest of {key} is wrong: {checked.problem}")
    return CopyManifest(key, size, expected.root_hash, found.entries)
