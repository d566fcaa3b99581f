"""A Fleet server of the tests' own: real gRPC; keeps what agents say, says what it is told to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc

from everstep_proto.controllers import ACTIVE_ADDRESS_KEY
from everstep_proto.generated import fleet_pb2, fleet_pb2_grpc
from everstep_proto.keepalive import keepalive, permitted_pings
from everstep_proto.tls import TlsSettings, server_credentials
from fakes.waits import eventually


@dataclass
class TinyFleet(fleet_pb2_grpc.FleetServicer):
    """Journals records in memory, as (outbox, sequence), and acknowledges them while ``acking``."""

    term: int = 1
    # Why it acts on nothing; "" while it does.
    halted: str = ""
    acking: bool = True
    # The address that it names as the active one's, "" for one that it does not know; None: it is
    # the active one.
    active: str | None = None
    # After Hello, messages are read.
    reading: bool = True
    # Of the keepalive.
    idle_s: float = 20.0
    timeout_s: float = 10.0
    hellos: list[fleet_pb2.Hello] = field(default_factory=list)
    records: dict[tuple[str, int], fleet_pb2.Record] = field(default_factory=dict)
    arrivals: list[int] = field(default_factory=list)
    acknowledged: list[int] = field(default_factory=list)
    messages: list[fleet_pb2.AgentMessage] = field(default_factory=list)
    outgoing: "asyncio.Queue[fleet_pb2.ControllerMessage]" = field(default_factory=asyncio.Queue)
    port: int = 0
    # Streams that have ended.
    ended: int = 0

    async def Connect(  # type: ignore[override]  # noqa: N802 - gRPC's name
        self,
        request_iterator: AsyncIterator[fleet_pb2.AgentMessage],
        context: "grpc.aio.ServicerContext[fleet_pb2.AgentMessage, fleet_pb2.ControllerMessage]",
    ) -> None:
        first = await anext(request_iterator, None)
        if first is None:  # a node only looks which controller is active
            await self.refuse(context)
            return
        self.hellos.append(first.hello)
        if self.active is not None:
            await self.refuse(context)
        outbox = first.hello.outbox
        self.outgoing = asyncio.Queue()
        welcome = fleet_pb2.Welcome(
            term=self.term, acknowledged=self.journaled(outbox), halted=bool(self.halted)
        )
        await context.write(fleet_pb2.ControllerMessage(welcome=welcome))
        if self.halted:
            self.halt(self.halted)
        sender = asyncio.create_task(self._send(context))
        try:
            if not self.reading:
                await asyncio.Event().wait()
            async for message in request_iterator:
                if self.active is not None:  # it has handed over
                    await self.refuse(context)
                self.messages.append(message)
                if message.HasField("record"):
                    self._journal(outbox, message.record)
        finally:
            self.ended += 1
            sender.cancel()

    async def refuse(
        self,
        context: "grpc.aio.ServicerContext[fleet_pb2.AgentMessage, fleet_pb2.ControllerMessage]",
    ) -> None:
        """End a stream as a standby does."""
        told = ((ACTIVE_ADDRESS_KEY, self.active or ""),)
        sentence = f"this is a standby; the active controller is {self.active or 'not known'}"
        await context.abort(grpc.StatusCode.UNAVAILABLE, sentence, told)

    def journaled(self, outbox: str) -> int:
        """Return the highest sequence of an outbox."""
        return max((number for name, number in self.records if name == outbox), default=0)

    def of(self, kind: str) -> list[fleet_pb2.Record]:
        """Return the journaled records with this body."""
        return [record for record in self.records.values() if record.WhichOneof("body") == kind]

    def halt(self, reason: str) -> None:
        """Say on the newest stream that it acts on nothing."""
        self.say(fleet_pb2.ControllerMessage(halted=fleet_pb2.Halted(reason=reason)))

    def say(self, message: fleet_pb2.ControllerMessage) -> None:
        """Send a message on the newest stream."""
        self.outgoing.put_nowait(message)

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the condition holds."""
        await eventually(condition)

    def _journal(self, outbox: str, record: fleet_pb2.Record) -> None:
        self.arrivals.append(record.sequence)
        self.records[outbox, record.sequence] = record
        if self.acking:
            self.acknowledged.append(record.sequence)
            ack = fleet_pb2.Ack(sequence=record.sequence)
            self.say(fleet_pb2.ControllerMessage(ack=ack))

    async def _send(
        self,
        context: "grpc.aio.ServicerContext[fleet_pb2.AgentMessage, fleet_pb2.ControllerMessage]",
    ) -> None:
        queue = self.outgoing
        while True:
            await context.write(await queue.get())


@asynccontextmanager
async def serving(
    fleet: TinyFleet, port: int = 0, tls: TlsSettings | None = None
) -> AsyncIterator[TinyFleet]:
    """Serve on loopback; at the end the server is gone at once, as after SIGKILL."""
    options = (*keepalive(fleet.idle_s, fleet.timeout_s), *permitted_pings())
    server = grpc.aio.server(options=options)
    fleet_pb2_grpc.add_FleetServicer_to_server(fleet, server)
    listen = f"127.0.0.1:{port}"
    if tls is None:
        fleet.port = server.add_insecure_port(listen)
    else:
        fleet.port = server.add_secure_port(listen, server_credentials(tls))
    await server.start()
    try:
        yield fleet
    finally:
        await server.stop(0)
