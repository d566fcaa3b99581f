"""Planned work over gRPC: who may be drained and restarted, and what is said of it."""

import asyncio
from pathlib import Path

import grpc
import pytest

from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from fakes.agent_stream import agent_stream
from fakes.controllers import controller
from fakes.local_secret import admin_channel

pytestmark = pytest.mark.timeout(60)


def test_a_drained_node_takes_no_new_ranks_until_it_is_released(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            request = admin_pb2.DrainRequest(node="node-1", reason="fan", operator="ann")
            assert list((await admin.Drain(request)).plans) == []
            assert running.runtime.state.nodes["node-1"].draining
            why = await admin.Why(admin_pb2.WhyRequest(name="node-1"))
            assert "takes no new ranks" in why.answer
            await admin.Isolate(admin_pb2.IsolateRequest(node="node-1", reason="smoke"))
            assert list((await admin.Drain(request)).plans) == ["node-1 is isolated already"]
            await admin.Release(admin_pb2.ReleaseRequest(node="node-1"))
            assert running.runtime.state.nodes["node-1"].usable

    asyncio.run(scenario())


def test_what_is_not_known_is_neither_drained_nor_restarted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            for call in (
                admin.Drain(admin_pb2.DrainRequest(node="x", reason="r")),
                admin.RestartJob(admin_pb2.RestartJobRequest(job="x", reason="r")),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call
                assert error.value.code() is grpc.StatusCode.NOT_FOUND

    asyncio.run(scenario())
