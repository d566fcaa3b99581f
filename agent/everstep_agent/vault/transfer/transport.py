"""Transport of a bulk connection: frames by the event loop, copies by a thread; here in plain."""

import asyncio
import errno
import os
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from everstep_agent.vault.memory.region import Region
from everstep_common import frames

# What a TLS record of a handshake begins with. As the first byte of a frame's length it would be
# 352 MiB, which no frame has: one byte tells what the other end speaks.
TLS_HANDSHAKE = 0x16
# Bytes copied at once of memory that cannot be sent as a file.
_READ_BYTES = 1024 * 1024
# How long, and for how much, an end that is turned away is listened to.
_FAREWELL_S = 1.0
_UNHEARD_BYTES_MAX = 64 * 1024


class TlsError(ConnectionError):
    """The two ends do not come together, or not any more; the sentence says what to change."""


@dataclass(frozen=True, slots=True)
class TlsMismatch:
    """The server, always in plain: one of us speaks TLS and the other does not."""


TLS_MISMATCH_FRAME = frames.encode(TlsMismatch())


class Transport(Protocol):
    """A connection that it owns. ``read`` and ``write`` are the loop's, the others a thread's.

    A thread finds the socket blocking, with the kernel's deadlines on it.
    """

    @property
    def socket(self) -> socket.socket:
        """Return the connection itself, to set, shut and close it."""
        ...

    @property
    def handshake_s(self) -> float:
        """Return how much of the event loop's time the handshake took so far."""
        ...

    async def handshake(self) -> None:
        """Agree with the other end on how to speak. Raises OSError."""
        ...

    async def read(self, count: int) -> bytes:
        """Return at most so many bytes; none at the end. Raises OSError."""
        ...

    async def write(self, data: bytes | memoryview) -> None:
        """Send all of it. Raises OSError."""
        ...

    def send_bytes(self, data: bytes, *, more: bool = False) -> None:
        """Send all of it; ``more`` follows at once. Raises OSError."""
        ...

    def send_region(self, region: Region, at: int, count: int) -> int:
        """Send bytes of a region; return how many, 0 where it has none. Raises OSError."""
        ...

    def receive_into(self, block: memoryview) -> int:
        """Fill a block, or its beginning; return how far, 0 at the end. Raises OSError."""
        ...


class PlainTransport:
    """Transport of plain bytes, from memory to network without a copy in this process.

    A server looks at the first byte that comes: who speaks TLS is told that this end does not.
    """

    def __init__(self, sock: socket.socket, *, server_side: bool = False) -> None:
        self.socket = prepare_socket(sock)
        self._peer = peer_address(sock)
        self._server_side = server_side
        self._ahead = b""
        # One byte is looked at.
        self.handshake_s = 0.0

    async def handshake(self) -> None:
        """See Transport."""
        if not self._server_side:
            return
        self._ahead = await asyncio.get_running_loop().sock_recv(self.socket, 1)
        if self._ahead == bytes([TLS_HANDSHAKE]):
            await send_and_drain(self.socket, TLS_MISMATCH_FRAME)
            raise TlsError(
                f"{self._peer} speaks TLS: jobs.bulk_tls is true there and false here; "
                "set it to the same on every node"
            )

    async def read(self, count: int) -> bytes:
        """See Transport."""
        if self._ahead:
            first, self._ahead = self._ahead, b""
            return first
        return await asyncio.get_running_loop().sock_recv(self.socket, count)

    async def write(self, data: bytes | memoryview) -> None:
        """See Transport."""
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    def send_bytes(self, data: bytes, *, more: bool = False) -> None:
        """See Transport."""
        self.socket.sendall(data, socket.MSG_MORE if more else 0)

    def send_region(self, region: Region, at: int, count: int) -> int:
        """See Transport."""
        try:
            # With the offset given, the descriptor's own, which a trainer shares, is not used.
            return os.sendfile(self.socket.fileno(), region.fd, at, count)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        # Explicit huge pages cannot be sent as a file; this is a copy more.
        return self.socket.send(region.read(at, at + min(count, _READ_BYTES)))

    def receive_into(self, block: memoryview) -> int:
        """See Transport."""
        return self.socket.recv_into(block, len(block), socket.MSG_WAITALL)


def prepare_socket(sock: socket.socket) -> socket.socket:
    """Return the connection as the event loop wants it."""
    sock.setblocking(False)
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        # Frames are small and answered: by default each would wait for an acknowledgement.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def peer_address(sock: socket.socket) -> str:
    """Return the address of the other end, for sentences."""
    try:
        host = sock.getpeername()
    except OSError:  # it has hung up
        return "the other end"
    return str(host[0]) if isinstance(host, tuple) else "the other end"


async def send_and_drain(sock: socket.socket, words: bytes) -> None:
    """Say a last word: were it closed with bytes unread, the other end might not hear it."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):  # TimeoutError among them
        async with asyncio.timeout(_FAREWELL_S):
            await loop.sock_sendall(sock, words)
            sock.shutdown(socket.SHUT_WR)
            left = _UNHEARD_BYTES_MAX
            while left > 0 and (unheard := await loop.sock_recv(sock, 4096)):
                left -= len(unheard)
