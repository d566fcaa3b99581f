"""The real controller with a port for relays beside its own: as much as a relay could save it.

Each agent behind a relay has its session, its clock and its acknowledgements as ever; only its
connection, its stream and the tasks of it are shared. Arguments: configuration, port for relays.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
from transport_relay import pack, unpack

from everstep_common.config import load
from everstep_controller.api.fleet.agent_streams import AgentStreams
from everstep_controller.api.fleet.sessions import Session
from everstep_controller.api.server import SERVER_OPTIONS
from everstep_controller.config import ControllerConfig
from everstep_controller.core.dispatch.core import Core
from everstep_controller.judging.judges import JUDGES
from everstep_controller.main import collect_garbage_seldom
from everstep_controller.service import Controller, Options
from everstep_proto.generated import fleet_pb2
from everstep_proto.tls import LOCAL

_PATH = "everstep.bench.Relay"
_ASK_S, _WRITE_S = 10.0, 0.1

Context = grpc.aio.ServicerContext[bytes, bytes]


class _Relay:
    """One relay's stream."""

    def __init__(self, streams: AgentStreams) -> None:
        self._streams = streams
        self._sessions: dict[int, Session] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: list[tuple[int, bytes]] = []

    async def serve(self, batches: AsyncIterator[bytes], context: Context) -> None:
        """Serve until the stream ends."""
        self._tasks += [asyncio.create_task(self._write(context)), asyncio.create_task(self._ask())]
        try:
            async for batch in batches:
                for place, message in unpack(batch):
                    await self._take(place, fleet_pb2.AgentMessage.FromString(message))
        finally:
            for task in self._tasks:
                task.cancel()
            for session in self._sessions.values():
                self._streams.close(session)

    async def _take(self, place: int, message: fleet_pb2.AgentMessage) -> None:
        session = self._sessions.get(place)
        if session is None:
            opened = await self._streams.open(message.hello, LOCAL, "127.0.0.1")
            self._sessions[place] = opened
            self._streams.ask_time(opened)
            self._tasks.append(asyncio.create_task(self._gather(place, opened)))
        else:
            self._streams.handle_message(session, message)

    async def _gather(self, place: int, session: Session) -> None:
        while True:
            said = await session.next_messages()
            self._waiting += [(place, message.SerializeToString()) for message in said]

    async def _write(self, context: Context) -> None:
        while True:
            await asyncio.sleep(_WRITE_S)
            waiting, self._waiting = self._waiting, []
            if waiting:
                await context.write(pack(waiting))

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(_ASK_S)
            for session in self._sessions.values():
                session.asked_ns.clear()
                self._streams.ask_time(session)


async def serve(config: Path, port: int) -> None:
    """Serve until killed."""
    collect_garbage_seldom()
    controller = Controller.open(load(ControllerConfig, config), Options(Core, judges=JUDGES))
    await controller.start()
    streams = controller.parts.fleet.streams
    server = grpc.aio.server(options=SERVER_OPTIONS)

    async def connect(batches: AsyncIterator[bytes], context: Context) -> None:
        await _Relay(streams).serve(batches, context)

    relay: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(connect)
    handlers = grpc.method_handlers_generic_handler(_PATH, {"Connect": relay})
    server.add_generic_rpc_handlers((handlers,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
