"""Connections that say nothing, from the host of a peer itself: its replicas still arrive."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from integration.tls_world import SIZE, copy, pair, remote, replica, send
from integration.vault_world import Node, lived, running, settings, training


@contextlib.asynccontextmanager
async def _connected(node: Node, count: int, first: bytes = b"") -> AsyncIterator[None]:
    """Keep so many connections to a node's bulk port, each of which has said no more than that."""
    host, _, port = node.jobs.bulk_address.rpartition(":")
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            one = await asyncio.to_thread(socket.create_connection, (host, int(port)), 20)
            stack.enter_context(one).sendall(first)
        yield


async def _arrived(receiver: Node, step: int) -> None:
    await receiver.outlet.until(lambda: (1, 0, step, True) in receiver.outlet.copies())


@pytest.mark.parametrize(
    ("count", "first"), [(32, b""), (64, b""), (1000, b""), (64, b"\0"), (300, b"\0\0\0\2{")]
)
@lived
async def test_every_step_is_replicated_beside_silent_connections_of_the_peers_host(
    tmp_path: Path, count: int, first: bytes
) -> None:
    async with (
        running(settings(tmp_path / "a"), "node-1") as sender,
        running(settings(tmp_path / "b"), "node-2") as receiver,
        training(sender) as rank,
        _connected(receiver, count, first),
    ):
        receiver.direct(1)
        sender.direct(1, target=receiver)
        for step in range(1, 4):
            await rank.save(step, f"state after {step}".encode())
            await _arrived(receiver, step)
            # Its slot is free again for a later step.
            receiver.direct(1, step)
            sender.direct(1, step, target=receiver)


@lived
async def test_a_replica_arrives_inside_tls_beside_strangers_who_begin_no_handshake(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as (first, second), _connected(second, 300):
        await _sent(first, second)


async def _sent(first: Node, second: Node) -> None:
    facts, region = copy()
    await send(first, remote(first, second), facts, region)
    assert replica(second, facts) == bytes(region.view()[:SIZE])
    region.release()
