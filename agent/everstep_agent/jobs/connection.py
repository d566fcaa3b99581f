"""The agent's end of a Unix connection to a launcher or trainer: frames in, frames and fds out."""

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
import termios
from collections.abc import Iterable, Sequence

from everstep_agent.jobs.processes import Peer
from everstep_agent.slices import slowly
from everstep_common import frames
from everstep_common.long_frames import decode_in_parts, encode_in_parts

# A Join with a long environment; thousands of connections of this size cost nobody his memory.
SMALL_BYTES_MAX = 256 * 1024
_COUNT = struct.Struct("i")


class Connection:
    """Frames over one non-blocking socket, which the connection owns.

    Descriptors that the other side sends are never received: the kernel closes them.
    """

    def __init__(self, connection: socket.socket, peer: Peer) -> None:
        connection.setblocking(False)
        self.peer = peer
        self._socket = connection
        self._buffer = bytearray()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

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
        end = frames.HEADER_BYTES + length
        await self._fill(end)
        # What came is not copied, for it may be long; only what follows it is.
        frame, self._buffer = self._buffer, self._buffer[end:]
        payload = memoryview(frame)[frames.HEADER_BYTES : end]
        return await slowly(decode_in_parts(payload, {kind.__name__: kind for kind in known}))

    async def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Send a message with descriptors, which stay the caller's. Raises OSError."""
        if fds and self._unread():
            # Descriptors on their way count against all that the agent may send, to anybody.
            raise frames.FrameError("descriptors go only to one that reads its answers")
        first, *others = await slowly(encode_in_parts(message))
        sent = await self._send_first(first, fds) if fds else 0
        for part in (first[sent:], *others):
            await asyncio.get_running_loop().sock_sendall(self._socket, part)

    def _unread(self) -> int:
        """Return how much of what was sent the other side has not taken yet."""
        (count,) = _COUNT.unpack(fcntl.ioctl(self._socket, termios.TIOCOUTQ, bytes(_COUNT.size)))
        return int(count)

    async def _fill(self, count: int) -> None:
        loop = asyncio.get_running_loop()
        while len(self._buffer) < count:
            data = await loop.sock_recv(self._socket, 1 << 16)
            if not data:
                raise ConnectionError("closed by the other side")
            self._buffer += data

    async def _send_first(self, frame: bytes, fds: Sequence[int]) -> int:
        while True:
            try:
                return socket.send_fds(self._socket, [frame], list(fds))
            except BlockingIOError:
                await self._writable()

    async def _writable(self) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        # A descriptor of its own: the loop allows one writer for each.
        fd = os.dup(self._socket.fileno())
        try:
            loop.add_writer(fd, ready.set)
            await ready.wait()
        finally:
            loop.remove_writer(fd)
            os.close(fd)
