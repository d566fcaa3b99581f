"""Threads at both ends of a TLS channel: whatever the sizes, each byte comes and nobody waits."""

import asyncio
import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_agent.vault.memory.region import allocate_region
from everstep_agent.vault.transfer.certificates import TlsCertificates
from everstep_agent.vault.transfer.transport import Transport
from integration.tls_world import authority
from integration.vault_world import TIMEOUT_S

# Around a record, what is read at once, and the smallest that travel.
_SIZES = st.lists(
    st.sampled_from([1, 4, 16383, 16384, 16385, 16661, 17000, 40000, 262144, 262145, 700000]),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def secrecy() -> Iterator[TlsCertificates]:
    with tempfile.TemporaryDirectory() as folder:
        yield TlsCertificates(authority(Path(folder) / "ca").issue("node-1", "agent"), "node-1")


def _opened(secrecy: TlsCertificates) -> tuple[Transport, Transport]:
    """Two ends that have shaken hands, with blocking sockets."""
    one, other = socket.socketpair()
    ends: tuple[Transport, Transport] = (
        secrecy.client_transport("node-1", one),
        secrecy.server_transport(other),
    )

    async def open_both() -> None:
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*(end.handshake() for end in ends))

    asyncio.run(open_both())
    for end in ends:
        end.socket.settimeout(TIMEOUT_S)
        # A deadline of the kernel, as in a transfer: MSG_WAITALL knows no other.
        end.socket.setblocking(True)
    return ends


def _take(end: Transport, sizes: list[int]) -> bytes:
    """Fill blocks of these sizes, one after the other."""
    found = bytearray()
    for size in sizes:
        block = bytearray(size)
        filled = 0
        while filled < size:
            with memoryview(block) as view, view[filled:] as rest:
                count = end.receive_into(rest)
            if not count:
                return bytes(found + block[:filled])
            filled += count
        found += block
    return bytes(found)


@settings(max_examples=25, deadline=None)
@given(given_sizes=_SIZES, taken=_SIZES)
def test_what_is_given_in_any_pieces_is_taken_in_any_blocks(
    secrecy: TlsCertificates, given_sizes: list[int], taken: list[int]
) -> None:
    giver, taker = _opened(secrecy)
    content = os.urandom(sum(given_sizes))
    # The taker wants what comes and no more: who waited for more would wait for ever.
    wanted = _cut(taken, len(content))
    stop = threading.Timer(TIMEOUT_S, lambda: taker.socket.shutdown(socket.SHUT_RDWR))
    stop.start()
    with ThreadPoolExecutor(1) as pool:
        took = pool.submit(_take, taker, wanted)
        at = 0
        for size in given_sizes:
            giver.send_bytes(
                content[at : at + size], more=size % 2 == 0 and at + size < len(content)
            )
            at += size
        assert took.result(TIMEOUT_S) == content
    stop.cancel()
    for end in (giver, taker):
        end.socket.close()


def _cut(sizes: list[int], total: int) -> list[int]:
    """Return blocks of these sizes, and one for the rest, that are so many bytes together."""
    found: list[int] = []
    for size in sizes:
        found.append(min(size, total))
        total -= found[-1]
    return [size for size in (*found, total) if size]


def test_memory_is_given_from_any_place_and_never_beyond_its_end(secrecy: TlsCertificates) -> None:
    giver, taker = _opened(secrecy)
    region = allocate_region(1 << 20, "test")
    content = os.urandom(region.size_bytes)
    os.pwrite(region.fd, content, 0)
    with ThreadPoolExecutor(1) as pool:
        took = pool.submit(_take, taker, [700001, region.size_bytes - 12345])
        assert giver.send_region(region, 12345, 700001) == 700001
        assert giver.send_region(region, 12345, 2 << 20) == region.size_bytes - 12345
        assert took.result(TIMEOUT_S) == content[12345 : 12345 + 700001] + content[12345:]
    assert giver.send_region(region, region.size_bytes, 1) == 0
    region.release()
    for end in (giver, taker):
        end.socket.close()


def test_the_end_of_the_connection_is_no_byte(secrecy: TlsCertificates) -> None:
    giver, taker = _opened(secrecy)
    giver.send_bytes(b"last")
    giver.socket.close()
    assert _take(taker, [4, 4]) == b"last"
    taker.socket.close()
