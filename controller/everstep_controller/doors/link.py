"""Link to a door: its streams as the controller has them, on the controller's event loop."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace

import grpc

from everstep_controller.api.fleet.servicer import (
    BUSY_S,
    StreamHandler,
    ask_time,
    end_of,
    handle_bytes,
    hello_of,
    peer_address,
)
from everstep_controller.api.fleet.sessions import Session, StreamEnd
from everstep_controller.doors.frames import BadFrameError, FrameBuffer, FromDoor, ToDoor, frame
from everstep_controller.doors.messages import EndedStream, OpenedStream, decode_opened, encode
from everstep_proto.record_codec import WireError
from everstep_proto.tls import IdentityError, peer_identity

logger = logging.getLogger(__name__)


_BROKEN = "the controller failed at this stream; its log says how"


class DoorLink(asyncio.Protocol):
    """One door; what its agents say goes to a StreamHandler in the order in which it comes."""

    def __init__(self, handler: StreamHandler, lost: Callable[[], None]) -> None:
        self._handler = handler
        self._lost = lost
        self._buffer = FrameBuffer()
        self._streams: dict[int, _Stream] = {}
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Event()
        self._room.set()

    # --- asyncio.Protocol ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            for kind, number, body in self._buffer.add(data):
                self._take(kind, number, body)
        except BadFrameError as error:
            logger.error("a door is not understood and is started anew: %s", error)
            self.close()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._room.clear()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol: the door is gone, and with it its streams."""
        self._room.set()
        streams, self._streams = self._streams, {}
        for one in streams.values():
            one.close()
        self._lost()

    # ---------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of open streams."""
        return len(self._streams)

    def close(self) -> None:
        """Close the link; the door ends by it."""
        if self._transport is not None:
            self._transport.close()

    def _take(self, kind: int, number: int, body: bytes) -> None:
        if kind == FromDoor.MESSAGE:
            if (stream := self._streams.get(number)) is not None:
                stream.hear(body)
        elif kind == FromDoor.OPENED:
            self._streams[number] = _Stream(number, self, self._handler, decode_opened(body))
        elif kind == FromDoor.CLOSED:
            if (stream := self._streams.pop(number, None)) is not None:
                stream.close()
        else:
            raise BadFrameError(f"a frame of kind {kind}")

    def tell(self, kind: ToDoor, number: int, body: bytes = b"") -> None:
        """Tell the door something."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(kind, number, body))

    async def room(self) -> None:
        """Wait until the door takes what it was told before."""
        await self._room.wait()

    def forget(self, number: int) -> None:
        """Forget a stream that was ended here."""
        self._streams.pop(number, None)


class _Stream:
    """One agent's stream."""

    def __init__(
        self, number: int, link: DoorLink, handler: StreamHandler, opened: OpenedStream
    ) -> None:
        self._number, self._link, self._handler = number, link, handler
        self._first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        # What came while the stream was being opened, or while the journal had no room.
        self._waiting: deque[bytes] = deque()
        self._session: Session | None = None
        self._draining = False
        self._drain_task: asyncio.Task[None] | None = None
        self._serving = asyncio.create_task(self._serve(opened), name="stream of a door")

    def hear(self, body: bytes) -> None:
        """Take a message of the agent."""
        if not self._first.done():
            self._first.set_result(body)
            # As gRPC's flow control does without doors: no more before its Hello is answered.
            self._link.tell(ToDoor.HOLD, self._number)
        elif self._session is None or self._waiting or self._draining:
            self._waiting.append(body)
        else:
            self._handle(self._session, body)
            if self._handler.busy(self._session):
                self._hold(self._session)

    def _handle(self, session: Session, body: bytes) -> None:
        try:
            handle_bytes(self._handler, session, body)
        except StreamEnd as end:
            session.end(end.code, end.sentence)
        except Exception:  # It ends this stream, and not all of the door.
            logger.exception("a message of %s could not be handled", session.node)
            session.end(grpc.StatusCode.INTERNAL, _BROKEN)

    def _hold(self, session: Session) -> None:
        """Have the door read no more of this stream until the journal has room."""
        self._link.tell(ToDoor.HOLD, self._number)
        self._draining = True
        self._drain_task = asyncio.create_task(self._drain(session), name="held stream")

    async def _drain(self, session: Session) -> None:
        while True:
            while self._handler.busy(session):  # noqa: ASYNC110 - rare, and the journal is quick
                await asyncio.sleep(BUSY_S)
            if not self._waiting:
                break
            self._handle(session, self._waiting.popleft())
        self._draining = False
        self._link.tell(ToDoor.GO_ON, self._number)

    async def _serve(self, opened: OpenedStream) -> None:
        """Serve the stream to its end, and have the door end it."""
        ended = None
        try:
            await self._run(opened)
        except (WireError, StreamEnd) as error:
            ended = end_of(error)
        except Exception:  # Its agent must not wait for ever.
            logger.exception("a stream broke")
        code, sentence, told = ended or (grpc.StatusCode.INTERNAL, _BROKEN, ())
        number = code.value[0]
        self._link.tell(ToDoor.END, self._number, encode(EndedStream(number, sentence, list(told))))
        self._link.forget(self._number)

    async def _run(self, opened: OpenedStream) -> None:
        shown = opened.shown
        try:
            identity = replace(peer_identity(shown), shown=lambda: shown)
        except IdentityError as error:
            raise StreamEnd(grpc.StatusCode.UNAUTHENTICATED, str(error)) from error
        hello = await hello_of(self._first)
        session = await self._handler.open(hello, identity, peer_address(opened.peer))
        asking = asyncio.create_task(ask_time(self._handler, session), name="clock of a node")
        try:
            self._session = session
            self._hold(session)
            while True:
                for message in await session.next_messages():
                    self._link.tell(ToDoor.SEND, self._number, message.SerializeToString())
                await self._link.room()
        finally:
            asking.cancel()
            self._handler.close(session)

    def close(self) -> None:
        """The agent is gone, or its door."""
        self._serving.cancel()
        if self._drain_task is not None:
            self._drain_task.cancel()
