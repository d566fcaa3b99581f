"""Moves the bytes of a copy over a bulk connection; blocking, for a worker thread."""

import mmap
import socket
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from everstep_agent.vault.hashing import CHUNK_BYTES, RootHash
from everstep_agent.vault.memory import Region
from everstep_agent.vault.wire import BulkError, Wire
from everstep_agent.vault.workers import Workers

T = TypeVar("T")

# Small enough for an even rate, large enough that the pauses cost nothing.
_PACED_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mover:
    """Moves copies with a deadline on every wait. ``bytes_per_s_max`` 0 is no limit."""

    workers: Workers
    timeout_s: float
    bytes_per_s_max: int = 0

    async def send(self, wire: Wire, region: Region, size_bytes: int) -> None:
        """Send the first bytes of a region. Raises OSError."""
        await self._in_thread(wire, lambda: self._send(wire.socket, region, size_bytes))

    async def receive(self, wire: Wire, region: Region, size_bytes: int) -> bytes:
        """Fill a region from the connection, freeze it, return its root hash. Raises OSError."""
        return await self._in_thread(wire, lambda: _receive(wire.socket, region, size_bytes))

    async def _in_thread(self, wire: Wire, work: Callable[[], T]) -> T:
        wire.socket.settimeout(self.timeout_s)
        try:
            return await self.workers.run(work, abort=lambda: _shut(wire.socket))
        finally:
            wire.socket.setblocking(False)

    def _send(self, connection: socket.socket, region: Region, size_bytes: int) -> None:
        step = _PACED_BYTES if self.bytes_per_s_max else size_bytes
        # A description of its own: an offset shared with the trainer's descriptor could be moved.
        with open(region.open_read_only(), "rb", buffering=0) as file:
            for start in range(0, size_bytes, step):
                count = min(step, size_bytes - start)
                if connection.sendfile(file, start, count) != count:
                    raise BulkError("the memory of the copy is shorter than its manifest")
                if self.bytes_per_s_max:
                    Event().wait(count / self.bytes_per_s_max)


def _receive(connection: socket.socket, region: Region, size_bytes: int) -> bytes:
    root = RootHash()
    with mmap.mmap(region.fd, region.size_bytes) as target, memoryview(target) as view:
        for start in range(0, size_bytes, CHUNK_BYTES):
            with view[start : min(start + CHUNK_BYTES, size_bytes)] as chunk:
                _fill(connection, chunk)
                root.add(chunk)
    region.freeze()
    return root.digest()


def _fill(connection: socket.socket, chunk: memoryview) -> None:
    filled = 0
    while filled < len(chunk):
        with chunk[filled:] as rest:
            count = connection.recv_into(rest)
        if not count:
            raise BulkError("the copy was cut short")
        filled += count


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it is closed already, which is what was wanted
