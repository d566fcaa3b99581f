"""Door: a process that accepts streams at the controller's address, and hands their messages on.

Several doors listen at one port, among which the kernel parts the connections. A door speaks TLS
and gRPC, and knows nothing of what is said: messages of agents go to the controller over a socket
that it inherits, calls of people to the controller's own services. It ends when that socket closes.
"""

import asyncio
import itertools
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import msgspec

from everstep_controller.api.secret_guard import SecretGuard
from everstep_controller.api.server import FLEET, SERVER_OPTIONS, ListenError, add_port
from everstep_controller.doors.forwarding import forwarded_methods
from everstep_controller.doors.frames import FrameBuffer, FromDoor, ToDoor, frame
from everstep_controller.doors.messages import (
    DoorSettings,
    OpenedStream,
    decode_ended,
    encode,
    shown_of,
)
from everstep_proto.local.ownership import UntrustedError
from everstep_proto.tls import TlsSettings

Context = grpc.aio.ServicerContext[bytes, bytes]
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_STOP_S = 1.0


class Controller(asyncio.Protocol):
    """The controller's end of the link, as a door has it."""

    def __init__(self) -> None:
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._buffer = FrameBuffer()
        self._streams: dict[int, DoorStream] = {}
        self._transport: asyncio.Transport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._numbers = itertools.count(1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        for kind, number, body in self._buffer.add(data):
            if (stream := self._streams.get(number)) is not None:
                stream.told(kind, body)

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._room.clear()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._room.set()
        if not self.gone.done():
            self.gone.set_result(None)

    def open(self, opened: OpenedStream) -> "DoorStream":
        """Tell that an agent has connected."""
        number = next(self._numbers) % (1 << 32)
        stream = self._streams[number] = DoorStream(number)
        self.say(FromDoor.OPENED, number, encode(opened))
        return stream

    def close(self, stream: "DoorStream") -> None:
        """Tell that it has gone."""
        del self._streams[stream.number]
        self.say(FromDoor.CLOSED, stream.number)

    def say(self, kind: FromDoor, number: int, body: bytes = b"") -> None:
        """Say something of a stream."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(kind, number, body))

    async def room(self) -> None:
        """Wait until the controller takes what was said before."""
        await self._room.wait()


class DoorStream:
    """A stream, and what the controller wants of it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.orders: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
        # Set while messages are read.
        self.reads = asyncio.Event()
        self.reads.set()

    def told(self, kind: int, body: bytes) -> None:
        """Take what the controller wants."""
        if kind == ToDoor.HOLD:
            self.reads.clear()
        elif kind == ToDoor.GO_ON:
            self.reads.set()
        else:
            self.orders.put_nowait((kind, body))


class DoorServicer:
    """Serves the streams of agents: bytes to and fro."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def connect(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Serve one agent's stream."""
        opened = OpenedStream(context.peer(), shown_of(context.auth_context()))
        stream = self._controller.open(opened)
        reading = asyncio.create_task(self._read(requests, stream))
        try:
            while True:
                kind, body = await stream.orders.get()
                if kind != ToDoor.SEND:
                    break
                await context.write(body)
        finally:
            reading.cancel()
            self._controller.close(stream)
        if kind == ToDoor.END:
            ended = decode_ended(body)
            code = _CODES.get(ended.code, grpc.StatusCode.UNAVAILABLE)
            await context.abort(code, ended.sentence, trailing_metadata=tuple(ended.told))

    async def _read(self, requests: AsyncIterator[bytes], stream: DoorStream) -> None:
        async for request in requests:
            await stream.reads.wait()
            self._controller.say(FromDoor.MESSAGE, stream.number, request)
            await self._controller.room()
        # The agent says no more: its stream ends as soon as what it is told has gone.
        stream.orders.put_nowait((0, b""))


async def _serve(settings: DoorSettings, link: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    _, controller = await loop.create_unix_connection(Controller, sock=link)
    tls = _tls(settings)
    guards = [] if tls.enabled else [SecretGuard(Path(settings.secret_file))]
    options = [*((k, v) for k, v in SERVER_OPTIONS if k != "grpc.so_reuseport")]
    server = grpc.aio.server(options=[*options, ("grpc.so_reuseport", 1)], interceptors=guards)
    connect: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
        DoorServicer(controller).connect
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(FLEET, {"Connect": connect}),)
    )
    services = grpc.aio.insecure_channel(f"unix:{settings.services}")
    server.add_generic_rpc_handlers(forwarded_methods(services))
    add_port(server, settings.listen, tls)
    await server.start()
    print("listening", flush=True)
    await controller.gone
    await server.stop(_STOP_S)
    await services.close()


def _tls(settings: DoorSettings) -> TlsSettings:
    if not settings.ca:
        return TlsSettings()
    return TlsSettings(
        ca=Path(settings.ca), certificate=Path(settings.certificate), key=Path(settings.key)
    )


def main() -> int:
    """Be a door: settings as JSON in the first argument, the link's descriptor in the second."""
    # What a terminal or a service manager sends is for the controller, which ends its doors.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    settings = msgspec.json.decode(sys.argv[1], type=DoorSettings)
    link = socket.socket(fileno=int(sys.argv[2]))
    try:
        asyncio.run(_serve(settings, link))
    except (ListenError, UntrustedError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
