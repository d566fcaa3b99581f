"""A stretch of network between two agents that knows their language, and strikes at a message."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from everstep_agent.vault.transfer.stripes import cut_stripes
from everstep_common.frames import HEADER_BYTES, body_length
from fakes.waits import eventually

_TAG_BYTES = 32
_INDEX_BYTES = 4
_PIECE_BYTES = 1 << 20
_END = b"\xff" * _INDEX_BYTES
# Before both ends have proven themselves, frames carry no code.
_BARE = ("TransferHello", "Challenge", "Proof")
# What is followed by stripes the same way: of a copy that is put, and of one that is fetched.
_BEFORE_STRIPES = (("PutCopy", "JoinTransfer"), ("CopyOffer", "TransferJoined"))


class Tap:
    """Forwards connections to wherever ``target`` says, of copies of so many bytes.

    When it sees message ``at`` for the ``nth`` time, it calls ``strike``: before it forwards it if
    it is ``held`` (then never, or half of a stripe), else after that.
    """

    def __init__(self, target: Callable[[], str], size_bytes: int, *, fetched: bool) -> None:
        self._target = target
        self._stripes = cut_stripes(size_bytes)
        self._fetched = fetched
        self._seen: Counter[str] = Counter()
        self._at = ("", 0)
        self._held = False
        self._strike: Callable[[], None] = lambda: None
        self._spoils = False
        self.struck = asyncio.Event()
        self.address = ""
        self.connections: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()

    async def shut(self) -> None:
        """Have what begins now wait until `open`; return when all that had begun is over."""
        self._open.clear()
        await self.quiet()

    def open(self) -> None:
        """Let things go on."""
        self._open.set()

    def arm(self, at: str, nth: int, *, held: bool, strike: Callable[[], None]) -> None:
        """Wait for a message; for one that says that bytes were wrong, see to that."""
        self._at, self._held, self._strike = (at, nth), held, strike
        self._spoils = at == "HashMismatch"
        self._seen.clear()
        self.struck.clear()

    def again(self) -> None:
        """The transfer went by without the message: begin to count anew."""
        self._seen.clear()
        self._spoils = self._at[0] == "HashMismatch"

    async def quiet(self) -> None:
        """Wait until nothing is on its way any more."""
        await eventually(lambda: not self.connections)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a new connection."""
        await self._open.wait()
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        try:
            await self.serve(reader, writer)
        finally:
            self.connections.discard(task)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection until either end has ended it."""
        host, port = self._target().rsplit(":", 1)
        try:
            there, onward = await asyncio.open_connection(host, int(port), limit=_PIECE_BYTES)
        except OSError:
            writer.close()
            return
        before = _BEFORE_STRIPES[self._fetched]
        ways = (self._forward(reader, onward, before), self._forward(there, writer, before))
        tasks = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            writer.close()
            onward.close()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        before_stripes: tuple[str, ...],
    ) -> None:
        try:
            while True:
                frame = await reader.readexactly(HEADER_BYTES)
                frame += await reader.readexactly(body_length(frame))
                name = json.loads(frame[HEADER_BYTES:])["type"]
                if name not in _BARE:
                    frame += await reader.readexactly(_TAG_BYTES)
                await self._pass(name, (b"", frame), writer)
                if name in before_stripes:
                    await self._forward_stripes(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    async def _forward_stripes(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while (index := await reader.readexactly(_INDEX_BYTES)) != _END:
            size = self._stripes[int.from_bytes(index, "big")].size_bytes
            first = index + self._spoiled(await reader.readexactly(size // 2))
            await self._pass("Stripe", (first, await reader.readexactly(size - size // 2)), writer)
        await self._pass("End", (b"", index), writer)

    def _spoiled(self, piece: bytes) -> bytes:
        if not self._spoils:
            return piece
        self._spoils = False
        return bytes([piece[0] ^ 1]) + piece[1:]

    async def _pass(
        self, name: str, halves: tuple[bytes, bytes], writer: asyncio.StreamWriter
    ) -> None:
        self._seen[name] += 1
        due = (name, self._seen[name]) == self._at
        writer.write(halves[0])
        if not (due and self._held):
            writer.write(halves[1])
        await writer.drain()
        if due:
            self._at = ("", 0)
            self._strike()
            self.struck.set()
            if self._held:
                raise ConnectionError("struck before it")


@asynccontextmanager
async def tapping(
    target: Callable[[], str], size_bytes: int, *, fetched: bool
) -> AsyncIterator[Tap]:
    """A tap that forwards for as long as the context is open."""
    tap = Tap(target, size_bytes, fetched=fetched)
    server = await asyncio.start_server(tap.accept, "127.0.0.1", 0, limit=_PIECE_BYTES)
    tap.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield tap
    finally:
        server.close()
        for task in tap.connections:
            task.cancel()
        await asyncio.gather(*tap.connections, return_exceptions=True)
