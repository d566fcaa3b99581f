"""Faults on purpose at a real controller: what is ordered, answered and refused."""

import asyncio
from pathlib import Path

import grpc
import pytest

from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import controller
from fakes.local_secret import admin_channel
from fakes.waits import eventually

pytestmark = pytest.mark.timeout(60)

_S = 1_000_000_000


def _request(
    spec: str = "xid:79", node: str = "node-1", seconds: int = 60
) -> admin_pb2.InjectRequest:
    return admin_pb2.InjectRequest(
        node=node, spec=spec, duration_ns=seconds * _S, reason="drill", operator="ann"
    )


async def _answer(
    agent: AgentStream, sequence: int, state: "fleet_pb2.InjectionState.ValueType"
) -> str:
    """Answer the next order about an injection; return the id of the injection."""
    order = (await agent.wait_for("order")).order
    clears = order.WhichOneof("body") == "clear_injection"
    name = order.clear_injection.injection if clears else order.order_id
    changed = fleet_pb2.InjectionChanged(injection=name, state=state, message="so it is")
    await agent.record(sequence, injection_changed=changed)
    return name


def test_an_operator_hears_what_the_agent_says(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            asked = asyncio.create_task(_told(admin, _request()))
            name = await _answer(agent, 2, fleet_pb2.INJECTION_STATE_ACTIVE)
            line = await asked
            assert (line.injection, line.state, line.message) == (name, "active", "so it is")
            refused = asyncio.create_task(_told(admin, _request("slow:20%")))
            await _answer(agent, 3, fleet_pb2.INJECTION_STATE_REFUSED)
            assert (await refused).state == "refused"

            request = admin_pb2.ClearInjectionsRequest(node="node-1", operator="ann")
            cleared = asyncio.create_task(_cleared(admin, request))
            assert await _answer(agent, 4, fleet_pb2.INJECTION_STATE_ENDED) == name
            states = [one.state for one in (await cleared).injections]
            assert states == ["ended", "refused"]
            listed = await admin.ListInjections(admin_pb2.ListInjectionsRequest(node="node-1"))
            assert [one.state for one in listed.injections] == states

    asyncio.run(scenario())


async def _told(
    admin: "admin_pb2_grpc.AdminAsyncStub", request: admin_pb2.InjectRequest
) -> admin_pb2.InjectionLine:
    return await admin.Inject(request)


async def _cleared(
    admin: "admin_pb2_grpc.AdminAsyncStub", request: admin_pb2.ClearInjectionsRequest
) -> admin_pb2.InjectionsReply:
    return await admin.ClearInjections(request)


def test_two_operators_hear_each_of_their_own(tmp_path: Path) -> None:
    async def scenario() -> list[tuple[str, str]]:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            asked = [
                asyncio.create_task(_told(admin, _request(spec))) for spec in ("xid:79", "xid:48")
            ]
            for sequence in (2, 3):
                await _answer(agent, sequence, fleet_pb2.INJECTION_STATE_ACTIVE)
            lines = await asyncio.gather(*asked)
            return [(line.spec, line.injection) for line in lines]

    told = asyncio.run(scenario())
    assert [spec for spec, _ in told] == ["xid:79", "xid:48"]
    assert len({name for _, name in told}) == 2


def test_what_cannot_be_ordered_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> list[grpc.StatusCode]:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            before = running.runtime.seq
            calls = [
                _told(admin, _request(node="x")),
                _told(admin, _request(seconds=0)),
                _told(admin, _request(seconds=3601)),
                _told(admin, _request(spec="")),
                _cleared(admin, admin_pb2.ClearInjectionsRequest(node="node-1", injection="x")),
            ]
            codes = []
            for call in calls:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call
                codes.append(error.value.code())
            assert running.runtime.seq == before
            return codes

    missing, impossible = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION
    assert asyncio.run(scenario()) == [missing, *[impossible] * 3, missing]


def test_the_end_of_many_is_waited_for_only_while_their_agent_is_there(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with (
            controller(tmp_path) as running,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            async with agent_stream(running.port, "node-1") as agent:
                await agent.healthy()
                for sequence in range(2, 6):
                    asked = asyncio.create_task(_told(admin, _request()))
                    await _answer(agent, sequence, fleet_pb2.INJECTION_STATE_ACTIVE)
                    await asked
            nodes = running.runtime.state.nodes
            await eventually(lambda: not nodes["node-1"].liveness.connected)
            # One wait for each of the four would take longer than the command line waits.
            async with asyncio.timeout(10):
                request = admin_pb2.ClearInjectionsRequest(node="node-1", operator="ann")
                return [one.state for one in (await _cleared(admin, request)).injections]

    assert asyncio.run(scenario()) == ["active"] * 4
