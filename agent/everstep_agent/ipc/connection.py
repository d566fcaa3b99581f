"""Local connection: the agent's end of a Unix socket, which carries frames and descriptors."""

import asyncio
import contextlib
import fcntl
import os
import select
import socket
import struct
import termios
from collections.abc import AsyncIterator, Iterable, Sequence

from everstep_agent.concurrency.cycle_collector import mark_all_old
from everstep_agent.concurrency.fair_turns import fair_turns
from everstep_agent.concurrency.time_slices import LoopYielder, run_in_slices
from everstep_agent.ipc.guarded_socket import GuardedSocket
from everstep_agent.ipc.message_memory import (
    SMALL_BYTES_MAX,
    MemoryLease,
    MessageMemories,
    MessageMemory,
    buffer_for,
    may_be_long,
    no_lease,
)
from everstep_agent.ipc.peer import Peer
from everstep_common import frames
from everstep_common.long_frames import decode_in_parts, encode_in_parts

_COUNT = struct.Struct("i")
# The most that one receive call takes: with more room the kernel would stay in it for as long as
# the other side sends.
_TAKEN_BYTES = 256 * 1024


class Connection:
    """Frames over one non-blocking socket, which the connection owns.

    It takes no descriptors: who sends some is cut off.
    """

    def __init__(self, connection: socket.socket, peer: Peer) -> None:
        self.peer = peer
        self._guarded = GuardedSocket(connection, peer.uid)
        self._socket = connection
        self._buffer = bytearray()
        self._memories: MessageMemories | None = None
        self._owner = ""
        # The memory that the message received last occupies of the agent's common limit.
        self._lease = no_lease()

    def use_memory(self, memories: MessageMemories, owner: str) -> None:
        """Have long messages wait for their turn among the owner's and all others'."""
        self._memories, self._owner = memories, owner

    def close(self) -> None:
        """End the connection."""
        self._lease.release()
        self._guarded.close()

    def take_lease(self) -> MemoryLease:
        """Return the room of the message that came last; the caller ends it with the message."""
        lease, self._lease = self._lease, no_lease()
        return lease

    def is_hung_up(self) -> bool:
        """Return whether the other side has closed the connection; what it sent may be unread."""
        state = select.poll()
        state.register(self._socket, 0)
        return any(event & select.POLLHUP for _, event in state.poll(0))

    def hang_up(self) -> None:
        """Let whoever receives see the end of the connection."""
        with contextlib.suppress(OSError):  # the other side was faster
            self._socket.shutdown(socket.SHUT_RDWR)

    async def receive(
        self, known: Iterable[type], most_bytes: int = frames.FRAME_BYTES_MAX
    ) -> object:
        """Return the next message. Raises FrameError for what is none, ConnectionError at EOF."""
        await self._fill(frames.HEADER_BYTES)
        length = frames.body_length(bytes(self._buffer[: frames.HEADER_BYTES]))
        if length > most_bytes:
            raise frames.FrameError(f"a frame of {length} bytes where {most_bytes} are enough")
        await fair_turns().wait_turn(self.peer.uid, length)
        self._lease.release()
        if self._memories is None or length <= SMALL_BYTES_MAX:
            payload = await self._body(length)
        else:
            self._lease = await self._memories.incoming.acquire(self._owner, length)
            async with _in_time(
                self._memories.incoming, f"a message of {length} bytes did not come"
            ):
                payload = await self._body(length)
        message = await run_in_slices(
            decode_in_parts(payload, {kind.__name__: kind for kind in known})
        )
        if length > SMALL_BYTES_MAX:
            mark_all_old()
        return message

    async def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Send a message with descriptors, which stay the caller's. Raises OSError."""
        if fds and self._unread():
            # Descriptors under way count against the agent's limit for all of its connections.
            raise frames.FrameError("descriptors go only to one that reads its answers")
        if self._memories is None:
            await self._send(await run_in_slices(encode_in_parts(message)), fds)
            return
        # The length is known only after encoding, so the largest is reserved before it.
        memory, long = self._memories.outgoing, may_be_long(message)
        lease = await memory.acquire(self._owner, frames.FRAME_BYTES_MAX) if long else no_lease()
        try:
            parts = await run_in_slices(encode_in_parts(message))
            lease.shrink(sum(map(len, parts)))
            # A short answer has a deadline, too: until it is taken, a long question that came after
            # it holds memory.
            async with _in_time(memory, "an answer was not taken"):
                await self._send(parts, fds)
        finally:
            lease.release()

    async def _send(self, parts: list[bytes], fds: Sequence[int]) -> None:
        first, *others = parts
        sent, yielder = await self._send_first(first, fds) if fds else 0, LoopYielder()
        for part in (first[sent:], *others):
            await asyncio.get_running_loop().sock_sendall(self._socket, part)
            await yielder.count_bytes(len(part))

    def _unread(self) -> int:
        """Return how much of what was sent the other side has not taken yet."""
        (count,) = _COUNT.unpack(fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(_COUNT.size)))
        return int(count)

    async def _fill(self, count: int) -> None:
        while len(self._buffer) < count:
            data = await self._guarded.receive()
            if not data:
                raise ConnectionError("closed by the other side")
            self._buffer += data

    async def _body(self, length: int) -> memoryview:
        """Return what follows a header that is in the buffer."""
        body, yielder = buffer_for(length), LoopYielder()
        begun = self._buffer[frames.HEADER_BYTES : frames.HEADER_BYTES + length]
        del self._buffer[: frames.HEADER_BYTES + length]
        at = len(begun)
        body[:at] = begun
        while at < length:
            count = await self._guarded.receive_into(body[at : at + _TAKEN_BYTES])
            if not count:
                raise ConnectionError("closed by the other side")
            at += count
            await yielder.count_bytes(count)
        return body

    async def _send_first(self, frame: bytes, fds: Sequence[int]) -> int:
        while True:
            try:
                return socket.send_fds(self._socket, [frame], list(fds))
            except BlockingIOError:
                await self._writable()

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        # A duplicate: the event loop allows only one writer for each descriptor.
        fd = os.dup(self._socket.fileno())
        try:
            loop.add_writer(fd, ready.set)
            await ready.wait()
        finally:
            loop.remove_writer(fd)
            os.close(fd)


@contextlib.asynccontextmanager
async def _in_time(memory: MessageMemory, what: str) -> AsyncIterator[None]:
    """Others wait for the room. Raises FrameError when the time is over."""
    try:
        async with asyncio.timeout(memory.timeout_s):
            yield
    except TimeoutError as error:
        raise frames.FrameError(f"{what} within {memory.timeout_s:g} s") from error
