"""Stores replicas on other agents, and fetches copies from them."""

import asyncio
import socket
from dataclasses import dataclass

from everstep_agent.vault.allocator import Allocator, Demand
from everstep_agent.vault.copies import CopyFacts, CopyKey, entries_problem
from everstep_agent.vault.memory import Region
from everstep_agent.vault.transfer import Mover
from everstep_agent.vault.wire import (
    Accept,
    BulkError,
    Get,
    Mismatch,
    Offer,
    Put,
    Sorry,
    Stored,
    Wire,
)


class RefusedError(BulkError):
    """The other agent said no; the sentence is its."""


class MismatchError(BulkError):
    """The bytes that arrived are not those that were hashed."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Another agent's bulk listener, for one job."""

    address: str
    job: str
    transfer_key: bytes


async def connect(remote: Remote, timeout_s: float) -> Wire:
    """Return an authenticated connection, which the caller closes. Raises OSError."""
    host, _, port = remote.address.rpartition(":")
    if not host or not port.isdigit():
        raise BulkError(f"not a host:port: {remote.address!r}")
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        connection = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        wire = Wire(connection)
        try:
            await loop.sock_connect(connection, address)
            await wire.connect(remote.job, remote.transfer_key)
        except BaseException:
            wire.close()
            raise
    return wire


async def put(remote: Remote, facts: CopyFacts, region: Region, mover: Mover) -> None:
    """Store a replica; returns when the other agent has acknowledged the hash. Raises OSError.

    RefusedError when it does not want it, MismatchError when the bytes arrived changed.
    """
    wire = await connect(remote, mover.timeout_s)
    try:
        key = facts.key
        await wire.send(
            Put(
                key.generation, key.rank, key.step, facts.size_bytes, facts.root_hash, facts.entries
            )
        )
        # The other agent allocates and pre-faults before it accepts.
        answer = await _answer(wire, 4 * mover.timeout_s, Accept, Stored)
        if isinstance(answer, Accept):
            await mover.send(wire, region, facts.size_bytes)
            answer = await _answer(wire, 4 * mover.timeout_s, Stored, Mismatch)
        if not isinstance(answer, Stored) or answer.root_hash != facts.root_hash:
            raise MismatchError(f"{facts.key} arrived changed at {remote.address}")
    finally:
        wire.close()


async def get(
    remote: Remote, wanted: CopyFacts, allocator: Allocator, mover: Mover, uid: int
) -> tuple[CopyFacts, Region]:
    """Fetch a copy and verify it. Raises OSError; MismatchError for one whose bytes are wrong."""
    wire = await connect(remote, mover.timeout_s)
    try:
        key = wanted.key
        await wire.send(Get(key.generation, key.rank, key.step))
        offer = await _answer(wire, mover.timeout_s, Offer)
        assert isinstance(offer, Offer)
        facts = _checked(offer, wanted, remote)
        demand = Demand(uid, 1, facts.size_bytes, f"everstep-fetched-{key.rank}")
        (region,) = await allocator.allocate(demand)
        try:
            await wire.send(Accept())
            root_hash = await mover.receive(wire, region, facts.size_bytes)
            if root_hash != wanted.root_hash:
                await wire.send(Mismatch(root_hash))
                raise MismatchError(f"{key} arrived changed from {remote.address}")
            await wire.send(Stored(root_hash))
        except BaseException:
            region.drop()
            raise
        return facts, region
    finally:
        wire.close()


def _checked(offer: Offer, wanted: CopyFacts, remote: Remote) -> CopyFacts:
    key: CopyKey = wanted.key
    if (offer.root_hash, offer.size_bytes) != (wanted.root_hash, wanted.size_bytes):
        raise RefusedError(f"{remote.address} holds a different copy of {key}")
    problem = entries_problem(offer.entries, offer.size_bytes)
    if problem:
        raise RefusedError(f"{remote.address} has a manifest of {key} that is wrong: {problem}")
    return CopyFacts(key, offer.size_bytes, offer.root_hash, offer.entries)


async def _answer(wire: Wire, timeout_s: float, *known: type) -> object:
    async with asyncio.timeout(timeout_s):
        answer = await wire.receive(*known, Sorry)
    if isinstance(answer, Sorry):
        raise RefusedError(answer.reason)
    return answer
