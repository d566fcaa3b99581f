"""Bulk connections between agents: authenticated control frames.

Client: TransferHello → Challenge → Proof; both ends then know that the other has the job's
transfer key.
Every later frame carries a code over a key of this connection, its direction and its number.
The stripes of a copy travel between frames; the root hash of the copy is in a frame.
"""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from everstep_agent.concurrency.cycle_collector import mark_all_old
from everstep_agent.concurrency.time_slices import LoopYielder, run_in_slices
from everstep_agent.ipc.message_memory import (
    SMALL_BYTES_MAX,
    MessageMemory,
    buffer_for,
    no_lease,
)
from everstep_agent.vault.transfer.transport import TlsError, TlsMismatch, Transport
from everstep_common import frames
from everstep_common.long_frames import Parts, decode_in_parts, encode_in_parts

_TAG_BYTES = hashlib.sha256().digest_size
# The longest frame of an end that has proven nothing yet: it must not make this one allocate.
_UNPROVEN_BYTES_MAX = 4096
# Deadline of a send: the largest frame at a hundredth of the speed of a slow network.
_SEND_S = 20.0
# Bytes that are authenticated at once, which takes a tenth of a millisecond.
_TAGGED_BYTES = 128 * 1024
# A frame of so few pieces is sent in one call together with its authentication code.
_SENT_AT_ONCE = 2
_SPEAKS_TLS = (
    "it takes transfers only inside TLS: jobs.bulk_tls is true there and false here; set it to the "
    "same on every node"
)


class BulkError(ConnectionError):
    """A bulk connection cannot go on; the sentence says why."""


@dataclass(frozen=True, slots=True)
class TransferHello:
    """The client names the lineage."""

    lineage: str
    nonce: bytes


@dataclass(frozen=True, slots=True)
class Challenge:
    """The server proves that it has the key."""

    nonce: bytes
    proof: bytes


@dataclass(frozen=True, slots=True)
class Proof:
    """The client proves that it has the key."""

    proof: bytes


class BulkConnection:
    """Control frames over one connection, which the wire owns.

    ``send_s``: how long the other end may take to make room for a frame.
    """

    def __init__(self, transport: Transport, send_s: float = _SEND_S) -> None:
        self._send_s = send_s
        self.transport = transport
        self._key = b""
        self._sent = self._received = 0
        self._memory: MessageMemory | None = None
        self._owner = ""
        self._send_role = self._receive_role = b""

    def use_memory(self, memory: MessageMemory, owner: str) -> None:
        """Have long messages that come wait for their turn among the owner's and all others'."""
        self._memory, self._owner = memory, owner

    def close(self) -> None:
        """End the connection."""
        self.transport.socket.close()

    async def send(self, message: object) -> None:
        """Send a message. Raises OSError."""
        frame = await run_in_slices(encode_in_parts(message))
        if self._key:
            body = [frame[0][frames.HEADER_BYTES :], *frame[1:]]
            frame.append(await run_in_slices(self._tag(self._send_role, self._sent, body)))
            self._sent += 1
        # An end that reads no more, stopped or hostile, must not hold up this one.
        yielder = LoopYielder()
        async with asyncio.timeout(self._send_s):
            for part in frame if len(frame) > _SENT_AT_ONCE else [b"".join(frame)]:
                await self.transport.write(part)
                await yielder.count_bytes(len(part))

    async def receive(self, *known: type) -> object:
        """Return the next message, which must be one of ``known``. Raises OSError."""
        length = frames.body_length(bytes(await self._exactly(frames.HEADER_BYTES)))
        if not self._key and length > _UNPROVEN_BYTES_MAX:
            raise BulkError(f"a first frame of {length} bytes")
        lease = await self._memory.acquire(self._owner, length) if self._memory else no_lease()
        try:
            return await self._body(length, {kind.__name__: kind for kind in known})
        finally:
            lease.release()

    async def _body(self, length: int, known: Mapping[str, type]) -> object:
        payload = await self._exactly(length)
        if self._key:
            tag = await self._exactly(_TAG_BYTES)
            parts = [payload[at : at + _TAGGED_BYTES] for at in range(0, length, _TAGGED_BYTES)]
            expected = await run_in_slices(self._tag(self._receive_role, self._received, parts))
            if not hmac.compare_digest(tag, expected):
                raise BulkError("a frame was changed on its way")
            self._received += 1
        message = await run_in_slices(decode_in_parts(payload, known))
        if length > SMALL_BYTES_MAX:
            mark_all_old()
        return message

    async def connect(self, lineage: str, key: bytes) -> None:
        """Authenticate as the client. Raises OSError."""
        await self.transport.handshake()
        nonce = secrets.token_bytes(32)
        await self.send(TransferHello(lineage, nonce))
        answer = await self.receive(Challenge, TlsMismatch)
        if isinstance(answer, TlsMismatch):
            raise TlsError(_SPEAKS_TLS)
        assert isinstance(answer, Challenge)
        both = nonce + answer.nonce
        if not hmac.compare_digest(answer.proof, _proof(key, b"server", lineage, both)):
            raise BulkError(f"the other agent does not have the transfer key of {lineage}")
        await self.send(Proof(_proof(key, b"client", lineage, both)))
        self._open(_proof(key, b"session", lineage, both), b"client", b"server")

    async def accept(self, key_of: Callable[[str], bytes | None]) -> str:
        """Authenticate as the server; return the lineage. Raises OSError."""
        await self.transport.handshake()
        hello = await self.receive(TransferHello)
        assert isinstance(hello, TransferHello)
        nonce = secrets.token_bytes(32)
        # An unknown lineage answers like a wrong key: nobody can list the jobs of a node.
        key = key_of(hello.lineage) or secrets.token_bytes(32)
        both = hello.nonce + nonce
        await self.send(Challenge(nonce, _proof(key, b"server", hello.lineage, both)))
        answer = await self.receive(Proof)
        assert isinstance(answer, Proof)
        if not hmac.compare_digest(answer.proof, _proof(key, b"client", hello.lineage, both)):
            raise BulkError("the other end does not have the transfer key")
        self._open(_proof(key, b"session", hello.lineage, both), b"server", b"client")
        return hello.lineage

    def _open(self, key: bytes, send_role: bytes, receive_role: bytes) -> None:
        self._key, self._send_role, self._receive_role = key, send_role, receive_role

    def _tag(self, role: bytes, number: int, payload: Iterable[bytes | memoryview]) -> Parts[bytes]:
        code = hmac.new(self._key, role + number.to_bytes(8, "big"), "sha256")
        for part in payload:
            code.update(part)
            yield
        return code.digest()

    async def _exactly(self, count: int) -> memoryview:
        found, at, yielder = buffer_for(count), 0, LoopYielder()
        while at < count:
            data = await self.transport.read(min(count - at, 1 << 20))
            if not data:
                raise BulkError("the other agent closed the connection")
            found[at : at + len(data)] = data
            at += len(data)
            await yielder.count_bytes(len(data))
        return found


def _proof(key: bytes, role: bytes, lineage: str, nonces: bytes) -> bytes:
    return hmac.digest(key, role + b"|" + nonces + lineage.encode(), "sha256")
