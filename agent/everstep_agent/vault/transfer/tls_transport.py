"""TLS transport: a bulk connection inside TLS 1.3, in which both ends show a certificate."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import cast

from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.transfer.transport import (
    TLS_HANDSHAKE,
    TLS_MISMATCH_FRAME,
    TlsError,
    peer_address,
    prepare_socket,
    send_and_drain,
)

# The most data that one TLS record holds.
_RECORD_BYTES = 16 * 1024
# Bytes encrypted, or read from the kernel, at once: plain and encrypted form fit a CPU's cache.
_PIECE_BYTES = 256 * 1024
# The most bytes that OpenSSL holds of a record that has not arrived whole: RFC 8446, 5.2.
_UNFINISHED_BYTES = _RECORD_BYTES + 256 + 5
_ALERT = 0x15


class TlsTransport:
    """See Transport. The certificate of the other end is checked before anything else is said.

    OpenSSL works on memory and the socket stays an ordinary one, so what waits, what stops and
    what counts is the same as without TLS. There is no way from here to a plain connection.
    """

    def __init__(
        self,
        sock: socket.socket,
        context: ssl.SSLContext,
        problem: Callable[[ssl.SSLObject], str],
        *,
        server_side: bool = False,
    ) -> None:
        self.socket = prepare_socket(sock)
        self._peer = peer_address(sock)
        self._server_side = server_side
        # Says what is wrong with the certificate of the other end; "" for nothing.
        self._problem = problem
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side)
        self._heard = False
        self.handshake_s = 0.0
        self._buffer = bytearray()

    async def handshake(self) -> None:
        """See Transport."""
        while not await self._advance_handshake():
            if not await self._feed():
                raise ConnectionError(
                    f"{self._peer} ended the connection in the TLS handshake; "
                    "an agent of a version without jobs.bulk_tls does that"
                )
        problem = self._problem(self._tls)
        if problem:
            await send_and_drain(self.socket, self._outgoing.read())
            raise TlsError(f"{self._peer}: {problem}")

    async def read(self, count: int) -> bytes:
        """See Transport."""
        while True:
            try:
                return self._tls.read(min(count, _RECORD_BYTES))
            except ssl.SSLWantReadError:
                if not await self._feed():
                    return b""
            except ssl.SSLError as error:
                raise _explained(self._peer, error) from error

    async def write(self, data: bytes | memoryview) -> None:
        """See Transport."""
        view = memoryview(data)
        for at in range(0, len(view), _PIECE_BYTES):
            self._tls.write(view[at : at + _PIECE_BYTES])
            await self._flush()

    def send_bytes(self, data: bytes, *, more: bool = False) -> None:
        """See Transport."""
        self._tls.write(data)
        if not more:
            self.socket.sendall(self._outgoing.read())

    def send_region(self, region: Region, at: int, count: int) -> int:
        """See Transport."""
        end = min(at + count, region.size_bytes)
        for start in range(at, end, _PIECE_BYTES):
            self._tls.write(region.read(start, min(start + _PIECE_BYTES, end)))
            self.socket.sendall(self._outgoing.read())
        return end - at

    def receive_into(self, block: memoryview) -> int:
        """See Transport."""
        while True:
            try:
                # With a buffer, read() returns a number; the type stub knows only the other form.
                return cast("int", self._tls.read(len(block), block))
            except ssl.SSLWantReadError:
                if not self._fetch(len(block)):
                    return 0
            except ssl.SSLError as error:
                raise _explained(self._peer, error) from error

    # --- inside ----------------------------------------------------------------------------------

    async def _advance_handshake(self) -> bool:
        """Go on with the handshake; return whether it is over. Raises OSError."""
        clock = asyncio.get_running_loop().time
        began_s = clock()
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.handshake_s += clock() - began_s
            await self._flush()
            return False
        except ssl.SSLError as error:
            # The other end is told why: an alert is waiting to be sent.
            await send_and_drain(self.socket, self._outgoing.read())
            raise _explained(self._peer, error) from error
        await self._flush()
        return True

    async def _feed(self) -> bool:
        """Take what comes; False at the end. Raises OSError."""
        data = await asyncio.get_running_loop().sock_recv(self.socket, _PIECE_BYTES)
        if data and not self._heard and data[0] not in (TLS_HANDSHAKE, _ALERT):
            await self._raise_mismatch()
        self._heard = True
        self._incoming.write(data)
        return bool(data)

    async def _raise_mismatch(self) -> None:
        """Raise TlsError: the other end speaks without TLS. A client is told so."""
        if self._server_side:
            await send_and_drain(self.socket, TLS_MISMATCH_FRAME)
        raise TlsError(
            f"{self._peer} speaks without TLS: jobs.bulk_tls is true here and false "
            "there; set it to the same on every node"
        )

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await asyncio.get_running_loop().sock_sendall(self.socket, self._outgoing.read())

    def _fetch(self, wanted: int) -> int:
        """Take encrypted bytes for so many; return how many came, 0 at the end. Raises OSError."""
        if not self._buffer:
            self._buffer = bytearray(_PIECE_BYTES)
        # As many bytes as are wanted still come, and more, so this waits for none that do not: one
        # call, where one for each packet would wake this thread as often.
        surely = min(wanted - _UNFINISHED_BYTES, len(self._buffer))
        count = max(surely, 0) or len(self._buffer)
        flags = socket.MSG_WAITALL if surely > 0 else 0
        came = self.socket.recv_into(self._buffer, count, flags)
        with memoryview(self._buffer) as view:
            self._incoming.write(view[:came])
        return came


def _explained(peer: str, error: ssl.SSLError) -> TlsError:
    """Return an error in the operator's words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(
            f"the certificate of {peer} is refused: {error.verify_message}; see [tls] there, "
            "and tls.ca here"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "certificate" in reason or "unknown ca" in reason:
        return TlsError(
            f"{peer} refuses the certificate of this node ({reason}); see [tls] here, and tls.ca "
            "there"
        )
    return TlsError(f"what came from {peer} is not what was sent ({reason})")
