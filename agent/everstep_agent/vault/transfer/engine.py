"""Transfer engine: moves the stripes of a copy over bulk connections; blocking, for threads.

On a connection each stripe follows its number; the last number is that of no stripe.
"""

import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from threading import Lock

from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.vault.memory.pages import populate_view
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.hashing import ChunkHash
from everstep_agent.vault.transfer.connection import BulkConnection, BulkError
from everstep_agent.vault.transfer.incoming_copy import IncomingCopy
from everstep_agent.vault.transfer.min_rate import MinRate, RateWatch
from everstep_agent.vault.transfer.rate_limit import RateLimiter
from everstep_agent.vault.transfer.stripes import Stripe
from everstep_agent.vault.transfer.transport import Transport

# Small enough to be hashed from the cache that the kernel has just copied it through, large enough
# that calls cost nothing. 1 GiB on one stream, hashed, took 0.30 s of CPU in blocks of
# 128 or 512 KiB, 0.34 of 1 MiB and more.
_BLOCK_BYTES = 512 * 1024
# New pages come just before the bytes do, and are still in the cache then. One huge page.
_POPULATED_BYTES = 2 * 1024 * 1024
_INDEX = struct.Struct(">I")
_END = 0xFFFFFFFF


class StripeQueue:
    """The stripes that still have to travel; each goes to the first stream that is free.

    So a slow stream carries few, and none waits for it. For threads.
    """

    def __init__(self, stripes: Iterable[Stripe]) -> None:
        self._stripes: Iterator[Stripe] = iter(stripes)
        self._lock = Lock()

    def add_stripes(self, stripes: Iterable[Stripe]) -> None:
        """Let these travel, too."""
        with self._lock:
            self._stripes = chain(self._stripes, stripes)

    def next_stripe(self) -> Stripe | None:
        """Return the next one, or None when all are under way."""
        with self._lock:
            return next(self._stripes, None)


@dataclass(frozen=True, slots=True)
class OutgoingCopy:
    """A copy that is being sent: its memory, and the stripes that still have to travel."""

    region: Region
    stripes: StripeQueue


@dataclass(frozen=True, slots=True)
class TransferEngine:
    """Engine that moves copies, each over up to ``streams`` connections, with deadlines."""

    threads: ThreadPool
    timeout_s: float
    rate_limiter: RateLimiter
    streams: int = 2
    min_rate: MinRate | None = None

    async def send(self, connection: BulkConnection, outgoing: OutgoingCopy) -> None:
        """Send stripes until none is left. Raises OSError."""
        await self._in_thread(connection, lambda: self._send(connection.transport, outgoing))

    async def receive(self, connection: BulkConnection, incoming: IncomingCopy) -> None:
        """Take stripes until the other end has no more. Raises OSError."""
        await self._in_thread(connection, lambda: _receive(connection.transport, incoming))

    async def _in_thread(self, connection: BulkConnection, work: Callable[[], None]) -> None:
        def timed() -> None:
            with _blocking(connection.transport.socket, self.timeout_s):
                work()

        try:
            await self.threads.run(timed, abort=lambda: _shut(connection.transport.socket))
        except BlockingIOError as error:  # what the kernel calls its own timeout
            raise TimeoutError(f"no byte came or went for {self.timeout_s:g} s") from error

    def _send(self, transport: Transport, outgoing: OutgoingCopy) -> None:
        while (stripe := outgoing.stripes.next_stripe()) is not None:
            transport.send_bytes(_INDEX.pack(stripe.index), more=True)
            self._send_stripe(transport, outgoing.region, stripe)
        transport.send_bytes(_INDEX.pack(_END))

    def _send_stripe(self, transport: Transport, region: Region, stripe: Stripe) -> None:
        at, end = stripe.start, stripe.start + stripe.size_bytes
        while at < end:
            count = min(self.rate_limiter.piece_bytes or end - at, end - at)
            self.rate_limiter.wait_for(count)
            sent = transport.send_region(region, at, count)
            if not sent:
                raise BulkError("the memory of the copy is shorter than its manifest")
            at += sent


def _receive(transport: Transport, incoming: IncomingCopy) -> None:
    number = bytearray(_INDEX.size)
    view = incoming.region.writable()
    while True:
        _fill(transport, memoryview(number), incoming.watch)
        (index,) = _INDEX.unpack(number)
        if index == _END:
            return
        stripe, digest = incoming.claim_stripe(index), None
        try:
            digest = _receive_stripe(transport, incoming, view, stripe)
        finally:
            incoming.settle_stripe(stripe, digest)


def _receive_stripe(
    transport: Transport, incoming: IncomingCopy, view: memoryview, stripe: Stripe
) -> bytes:
    chunk, end = ChunkHash(), stripe.start + stripe.size_bytes
    for start in range(stripe.start, end, _BLOCK_BYTES):
        if incoming.pages is not None and start % _POPULATED_BYTES == 0:
            with view[start : min(start + _POPULATED_BYTES, end)] as part:
                populate_view(part, incoming.pages)
        with view[start : min(start + _BLOCK_BYTES, end)] as block:
            _fill(transport, block, incoming.watch)
            chunk.add(block)
    return chunk.digest()


def _fill(transport: Transport, block: memoryview, watch: RateWatch | None) -> None:
    filled = 0
    while filled < len(block):
        with block[filled:] as rest:
            count = transport.receive_into(rest)
        if not count:
            raise BulkError("the copy was cut short")
        filled += count
        if watch is not None:
            watch.count_bytes(count)


@contextmanager
def _blocking(sock: socket.socket, timeout_s: float) -> Iterator[None]:
    """Let the kernel wait, for so long at a time: one call for a block instead of one per packet.

    A call that has moved some bytes by then returns them, so a slow peer is borne with. The buffers
    are left to the kernel: setting their size would end its own tuning, which goes further.
    """
    timeout = struct.pack("@ll", int(timeout_s), int(timeout_s % 1 * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        sock.setsockopt(socket.SOL_SOCKET, option, timeout)
    sock.setblocking(True)
    try:
        yield
    finally:
        sock.setblocking(False)


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already, which is what was wanted
