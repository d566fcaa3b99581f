"""Two agents prove to each other that they know the job's key; later frames cannot be changed."""

import asyncio
import socket

import pytest

from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_agent.vault.transfer.connection import BulkConnection, BulkError
from everstep_agent.vault.transfer.messages import GetCopy, PutCopy, SendStripes
from everstep_agent.vault.transfer.transport import PlainTransport
from everstep_common.frames import FrameError

KEY = b"k" * 32


def _pair() -> tuple[BulkConnection, BulkConnection]:
    one, other = socket.socketpair()
    return BulkConnection(PlainTransport(one)), BulkConnection(PlainTransport(other))


async def _open(
    client: BulkConnection, server: BulkConnection, key: bytes
) -> tuple[object, object]:
    known: dict[str, bytes] = {"demo": KEY}

    async def connect() -> None:
        try:
            await client.connect("demo", key)
        finally:
            if key != KEY:
                client.close()

    opened, accepted = await asyncio.gather(
        connect(), server.accept(known.get), return_exceptions=True
    )
    return opened, accepted


def test_both_ends_with_the_key_understand_each_other() -> None:
    async def talk() -> None:
        client, server = _pair()
        assert await _open(client, server, KEY) == (None, "demo")
        await client.send(GetCopy(CopyRef(CopyKey(1, 2, 3), 4, b"r")))
        assert await server.receive(PutCopy, GetCopy) == GetCopy(CopyRef(CopyKey(1, 2, 3), 4, b"r"))
        await server.send(SendStripes())
        assert await client.receive(SendStripes) == SendStripes()
        client.close()
        server.close()

    asyncio.run(talk())


def test_a_client_without_the_key_gets_nowhere() -> None:
    async def talk() -> None:
        client, server = _pair()
        refused, dropped = await _open(client, server, b"guess")
        assert isinstance(refused, BulkError)
        assert isinstance(dropped, BulkError)
        server.close()

    asyncio.run(talk())


@pytest.mark.parametrize("again", [False, True])
def test_a_frame_that_is_changed_or_sent_twice_ends_the_connection(*, again: bool) -> None:
    async def talk() -> None:
        client, server = _pair()
        await _open(client, server, KEY)
        await client.send(GetCopy(CopyRef(CopyKey(1, 2, 3), 4, b"r")))
        frame = server.transport.socket.recv(4096)
        if again:
            client.transport.socket.sendall(frame)
            assert await server.receive(GetCopy) == GetCopy(CopyRef(CopyKey(1, 2, 3), 4, b"r"))
        client.transport.socket.sendall(frame if again else frame.replace(b'"step":3', b'"step":4'))
        with pytest.raises(BulkError, match="changed on its way"):
            await server.receive(GetCopy)
        client.close()
        server.close()

    asyncio.run(talk())


def test_an_unproven_end_cannot_make_the_other_allocate() -> None:
    async def talk() -> None:
        client, server = _pair()
        client.transport.socket.sendall((1 << 20).to_bytes(4, "big"))
        with pytest.raises((BulkError, FrameError), match="bytes"):
            await server.accept(lambda _: None)
        client.close()
        server.close()

    asyncio.run(talk())


def test_an_end_that_reads_nothing_does_not_hold_the_other() -> None:
    async def talk() -> None:
        one, other = socket.socketpair()
        wire = BulkConnection(PlainTransport(one), send_s=0.01)

        async def flood() -> None:
            while True:
                await wire.send(GetCopy(CopyRef(CopyKey(1, 2, 3), 4, bytes(100_000))))

        with pytest.raises(TimeoutError):
            await flood()
        wire.close()
        other.close()

    asyncio.run(talk())
