"""Maintenance windows over gRPC and on disk: what is taken, refused, shown and kept."""

import asyncio
from collections.abc import Awaitable
from pathlib import Path

import grpc
import pytest

from everstep_controller.core.model.node import NodeState
from everstep_proto.generated import admin_pb2, admin_pb2_grpc
from fakes.agent_stream import agent_stream
from fakes.controllers import controller
from fakes.local_secret import admin_channel

pytestmark = pytest.mark.timeout(60)
_S = 1_000_000_000
_REQUEST = admin_pb2.AddMaintenanceRequest(
    nodes=["node-1"], in_ns=7200 * _S, duration_ns=600 * _S, reason="fans", operator="ann"
)


async def _refused(call: Awaitable[object]) -> grpc.StatusCode:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value.code()


async def _metrics(port: int) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    return text


def test_a_window_is_kept_over_a_restart_of_the_controller(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            window = await admin.AddMaintenance(_REQUEST)
            assert (window.window, window.state, window.by) == ("m-1", "planned", "ann")
            assert window.end_ns - window.begin_ns == 600 * _S
            (node,) = (await admin.ListNodes(admin_pb2.ListNodesRequest())).nodes
            assert "maintenance m-1" in node.maintenance
        async with (
            controller(tmp_path) as again,
            admin_channel(again.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            (kept,) = (await admin.ListMaintenance(admin_pb2.ListMaintenanceRequest())).windows
            assert kept == window
            cancel = admin_pb2.CancelMaintenanceRequest(window="m-1", operator="bob")
            assert (await admin.CancelMaintenance(cancel)).ended_by == "bob"
            assert not (await admin.ListMaintenance(admin_pb2.ListMaintenanceRequest())).windows
            every = admin_pb2.ListMaintenanceRequest(all=True)
            assert [w.state for w in (await admin.ListMaintenance(every)).windows] == ["cancelled"]
            precondition = grpc.StatusCode.FAILED_PRECONDITION
            assert await _refused(admin.CancelMaintenance(cancel)) is precondition

    asyncio.run(scenario())


def test_a_window_that_begins_now_has_its_node_in_maintenance_and_ends_when_cancelled(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            now = admin_pb2.AddMaintenanceRequest(nodes=["node-1"], duration_ns=600 * _S)
            assert (await admin.AddMaintenance(now)).state == "begun"
            node = running.runtime.state.nodes["node-1"]
            assert node.state is NodeState.MAINTENANCE
            metrics = await _metrics(running.metrics_port)
            assert 'everstep_maintenance_windows{state="begun"} 1.0' in metrics
            assert 'everstep_node_state{node="node-1",state="maintenance"} 1.0' in metrics
            await admin.CancelMaintenance(admin_pb2.CancelMaintenanceRequest(window="m-1"))
            # The check that is ordered then is answered by the test's agent at some time.
            assert node.state in (NodeState.VALIDATING, NodeState.PROBATION)

    asyncio.run(scenario())


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            unknown = admin_pb2.AddMaintenanceRequest(nodes=["x"], duration_ns=600 * _S)
            assert await _refused(admin.AddMaintenance(unknown)) is grpc.StatusCode.NOT_FOUND
            absent = admin_pb2.CancelMaintenanceRequest(window="m-9")
            assert await _refused(admin.CancelMaintenance(absent)) is grpc.StatusCode.NOT_FOUND
            precondition = grpc.StatusCode.FAILED_PRECONDITION
            past = admin_pb2.AddMaintenanceRequest(
                nodes=["node-1"], begin_ns=_S, duration_ns=600 * _S
            )
            assert await _refused(admin.AddMaintenance(past)) is precondition
            nobody = admin_pb2.AddMaintenanceRequest(duration_ns=600 * _S)
            assert await _refused(admin.AddMaintenance(nobody)) is precondition
            await admin.AddMaintenance(_REQUEST)
            assert await _refused(admin.AddMaintenance(_REQUEST)) is precondition

    asyncio.run(scenario())
