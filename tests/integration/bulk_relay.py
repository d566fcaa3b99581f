"""A stretch of network between two agents that a test can count on, cut, spoil and stall."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

# Larger pieces than any frame of the tests: what comes in one is bytes of a copy.
_PIECE_BYTES = 256 * 1024
_DATA_BYTES = 64 * 1024


class Relay:
    """Forwards connections to an address; ``spoil`` sees all pieces of copies on their way there.

    It returns what to forward instead, or None to cut every connection.
    """

    def __init__(self, target: str) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self.spoil: Callable[[bytes], bytes | None] = lambda piece: piece
        # How long each piece waits on its way.
        self.pace_s = 0.0
        # The smallest piece that ``spoil`` sees: none of frames, as a rule.
        self.data_bytes = _DATA_BYTES
        self.connections = 0
        self.address = ""
        # Who listens on the way, to all that passes.
        self.overhear: Callable[[bytes], object] = lambda piece: None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until it ends."""
        self.connections += 1
        host, port = self._target.rsplit(":", 1)
        there, onward = await asyncio.open_connection(host, int(port))
        self._writers |= {writer, onward}
        try:
            await asyncio.gather(self._pump(reader, onward), self._pump(there, writer))
        except OSError:
            pass
        finally:
            self._writers -= {writer, onward}
            writer.close()
            onward.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(_PIECE_BYTES):
            self.overhear(piece)
            passed: bytes | None = piece
            if len(piece) >= self.data_bytes:
                passed = self.spoil(piece)
            if passed is None:
                self.cut()
                return
            await asyncio.sleep(self.pace_s)
            writer.write(passed)
            await writer.drain()
        writer.close()

    def cut(self) -> None:
        """End every connection; what was forwarded still arrives."""
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def relay(target: str) -> AsyncIterator[Relay]:
    """A relay that serves for as long as the context is open."""
    one = Relay(target)
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield one
    finally:
        one.cut()
        server.close()
        await server.wait_closed()


def cut_after(count: int) -> Callable[[bytes], bytes | None]:
    """Return a spoiler that lets so many bytes pass, and cuts once."""
    left = [count]

    def spoil(piece: bytes) -> bytes | None:
        if left[0] < 0:
            return piece
        left[0] -= len(piece)
        return piece if left[0] >= 0 else None

    return spoil


def flip_once() -> Callable[[bytes], bytes | None]:
    """Return a spoiler that flips one bit, once."""
    todo = [True]

    def spoil(piece: bytes) -> bytes | None:
        if not todo:
            return piece
        todo.clear()
        middle = len(piece) // 2
        return piece[:middle] + bytes([piece[middle] ^ 1]) + piece[middle + 1 :]

    return spoil
