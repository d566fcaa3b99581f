"""A controller whose streams are accepted by processes of their own: nothing else is different."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import psutil
import pytest

from everstep_controller.api.fleet.sessions import Session
from everstep_controller.api.server import ListenError
from everstep_controller.core.dispatch.core import Core
from everstep_controller.doors.frames import (
    BadFrameError,
    FrameBuffer,
    FromDoor,
    ToDoor,
    frame,
)
from everstep_controller.doors.link import DoorLink
from everstep_controller.doors.messages import OpenedStream, decode_ended, encode
from everstep_controller.service import Controller, Options
from everstep_controller.telemetry.clock_map import ClockMap
from everstep_proto.generated import admin_pb2, fleet_pb2
from everstep_proto.generated.admin_pb2_grpc import AdminStub
from everstep_proto.record_codec import WireError
from everstep_proto.tls import Identity, TlsSettings, aio_channel
from fakes.agent_stream import agent_stream
from fakes.authority import Authority
from fakes.controllers import config
from fakes.local_secret import admin_channel
from fakes.waits import eventually


@asynccontextmanager
async def behind_doors(
    folder: Path, number: int = 2, tls: TlsSettings | None = None
) -> AsyncIterator[Controller]:
    settings = replace(config(folder, tls), stream_processes=number)
    if tls is not None:
        settings = replace(settings, listen="localhost:0")
    running = Controller.open(settings, Options(Core))
    await running.start()
    try:
        yield running
    finally:
        await running.stop()


def doors_of(running: Controller) -> list[int]:
    doors = running.parts.serving.doors
    assert doors is not None
    return doors.processes


def test_agents_are_served_and_people_are_answered_by_every_door(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with behind_doors(tmp_path) as running:
            names = [f"node-{number}" for number in range(8)]
            for name in names:
                async with agent_stream(running.port, name) as agent:
                    await agent.healthy()
                    for sequence in range(2, 30):
                        await agent.finding(sequence)
                    await agent.acknowledged(29)
            # A channel is one connection, and the kernel gives each to a door.
            for _ in range(8):
                async with admin_channel(running.port) as channel:
                    reply = await AdminStub(channel).ListNodes(admin_pb2.ListNodesRequest())
                    assert sorted(node.node for node in reply.nodes) == names
        assert not [pid for pid in doors_of(running) if psutil.pid_exists(pid)]

    asyncio.run(scenario())


def test_an_order_a_refusal_and_a_followed_list_go_through_a_door(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with behind_doors(tmp_path, 1) as running, admin_channel(running.port) as channel:
            stub = AdminStub(channel)
            followed = stub.WatchEvents(admin_pb2.WatchEventsRequest(follow=True))
            await stub.Pause(admin_pb2.PauseRequest(reason="a look"))
            async for event in followed:
                if event.reason == "AutomationPaused":
                    break
            followed.cancel()
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.GetNode(admin_pb2.GetNodeRequest(node="nobody"))
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND
            with pytest.raises(grpc.aio.AioRpcError) as nobody:
                async with grpc.aio.insecure_channel(f"127.0.0.1:{running.port}") as stranger:
                    await AdminStub(stranger).ListNodes(admin_pb2.ListNodesRequest())
            assert nobody.value.code() is grpc.StatusCode.UNAUTHENTICATED

    asyncio.run(scenario())


def test_who_a_certificate_names_is_judged_as_without_doors(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("controller", "operator")
    node, viewer = authority.issue("node-1", "agent"), authority.issue("vera", "viewer")
    operator = authority.issue("ada", "operator")

    async def scenario() -> None:
        async with behind_doors(tmp_path, 1, own) as running:
            async with agent_stream(running.port, "node-1", node) as agent:
                await agent.healthy()
            async with agent_stream(running.port, "node-2", node) as other:
                await other.send_hello()
                code, said = await other.end()
                assert code is not grpc.StatusCode.OK
                assert "node-1" in said
            address = f"localhost:{running.port}"
            async with aio_channel(address, viewer) as channel:
                stub = AdminStub(channel)
                reply = await stub.ListNodes(admin_pb2.ListNodesRequest())
                assert [one.node for one in reply.nodes] == ["node-1"]
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await stub.Pause(admin_pb2.PauseRequest(reason="not mine to give"))
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
                assert "vera is viewer" in str(refused.value.details())
            async with aio_channel(address, operator) as channel:
                # What a caller claims beside his certificate counts for nothing.
                forged = (("everstep-shown-bin", b"\x80"),)
                await AdminStub(channel).Pause(
                    admin_pb2.PauseRequest(reason="mine", operator="eve"), metadata=forged
                )
            assert "ada: mine" in running.runtime.state.paused["fleet"]

    asyncio.run(scenario())


def test_a_door_that_dies_is_started_anew_and_its_agents_lose_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with behind_doors(tmp_path, 1) as running:
            async with agent_stream(running.port, "node-1") as agent:
                await agent.healthy()
                await agent.finding(2)
                await agent.acknowledged(2)
                (first,) = doors_of(running)
                os.kill(first, signal.SIGKILL)
                with pytest.raises((EOFError, grpc.aio.AioRpcError)):
                    await agent.wait_for("shutdown")
            await eventually(lambda: doors_of(running) != [first])
            await eventually(lambda: not len(running.parts.fleet.sessions))
            async with agent_stream(running.port, "node-1") as agent:
                welcome = await agent.hello()
                assert welcome.acknowledged == 2

    asyncio.run(scenario())


def test_an_agent_is_told_at_the_end_that_the_controller_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        running = Controller.open(replace(config(tmp_path), stream_processes=1), Options(Core))
        await running.start()
        async with agent_stream(running.port, "node-1") as agent:
            await agent.healthy()
            stopping = asyncio.create_task(running.stop())
            code, said = await agent.end()
            assert (code, said) == (grpc.StatusCode.UNAVAILABLE, "the controller is stopping")
            await stopping

    asyncio.run(scenario())


def test_a_port_that_another_program_has_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        async def scenario() -> None:
            settings = replace(config(tmp_path), stream_processes=1, listen=f"127.0.0.1:{port}")
            with pytest.raises(ListenError, match="who uses the port"):
                Controller.open(settings, Options(Core))

        asyncio.run(scenario())


def test_frames_come_whole_out_of_whatever_pieces_they_come_in() -> None:
    sent = [(1, 7, b""), (2, 2**32 - 1, b"x" * 1000), (3, 0, bytes(range(256)))]
    together = b"".join(frame(*one) for one in sent)
    for size in (1, 2, 8, 9, 10, 500, len(together)):
        buffer = FrameBuffer()
        pieces = (together[at : at + size] for at in range(0, len(together), size))
        assert [one for piece in pieces for one in buffer.add(piece)] == sent


def test_a_frame_that_is_none_is_refused() -> None:
    with pytest.raises(BadFrameError):
        list(FrameBuffer().add(b"\xff" * 9))


class _Transport(asyncio.Transport):
    """One end of a link, which keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[int, int, bytes]] = []
        self.closed = False
        self._frames = FrameBuffer()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.told += self._frames.add(bytes(data))

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class _Breaking:
    """A handler that fails at every message."""

    async def open(self, hello: fleet_pb2.Hello, identity: Identity, address: str) -> Session:
        del identity, address
        return Session(hello.node, "box", ClockMap())

    def close(self, session: Session) -> None:
        """Nothing is left."""

    def handle_message(self, session: Session, message: fleet_pb2.AgentMessage) -> None:
        raise ZeroDivisionError

    def reject_bytes(self, session: Session, error: WireError) -> None:
        raise ZeroDivisionError

    def busy(self, session: Session) -> bool:
        del session
        return False

    def ask_time(self, session: Session) -> None:
        """It asks nobody."""


def test_a_message_that_breaks_its_handler_ends_its_stream_and_not_the_door() -> None:
    async def scenario() -> _Transport:
        transport = _Transport()
        link = DoorLink(_Breaking(), lambda: None)
        link.connection_made(transport)
        hello = fleet_pb2.AgentMessage(hello=fleet_pb2.Hello(node="node-1"))
        opened = encode(OpenedStream("unix:", {}))
        link.data_received(frame(FromDoor.OPENED, 1, opened))
        link.data_received(frame(FromDoor.MESSAGE, 1, hello.SerializeToString()))
        await eventually(lambda: any(kind == ToDoor.GO_ON for kind, _, _ in transport.told))
        link.data_received(frame(FromDoor.MESSAGE, 1, b""))
        await eventually(lambda: any(kind == ToDoor.END for kind, _, _ in transport.told))
        return transport

    transport = asyncio.run(scenario())
    assert transport.told[0][0] == ToDoor.HOLD
    ended = decode_ended(transport.told[-1][2])
    assert ended.code == grpc.StatusCode.INTERNAL.value[0]
    assert not transport.closed
