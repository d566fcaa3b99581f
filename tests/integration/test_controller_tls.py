import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass

from everstep_controller.api.fleet.agent_streams import RENEWED_S
from everstep_controller.api.fleet.stream_certificates import StreamCertificates
from everstep_controller.api.server import HANDSHAKE_S
from everstep_controller.core.events import NodeDisconnected
from everstep_controller.runtime.fold import TakenEvent
from everstep_controller.service import Controller
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2, fleet_pb2_grpc
from everstep_proto.tls import aio_channel
from fakes.agent_stream import AgentStream, agent_stream
from fakes.authority import Authority
from fakes.controllers import controller

pytestmark = pytest.mark.timeout(2 * HANDSHAKE_S + 30)


def with_controller(folder: Path, act: Callable[[Controller, Authority], Awaitable[None]]) -> None:
    authority = Authority(folder)
    tls = authority.issue("controller", "operator")

    async def scenario() -> None:
        async with controller(folder, tls=tls) as running:
            await act(running, authority)

    asyncio.run(scenario())


def test_an_agent_is_welcome_under_the_name_in_its_certificate_only(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        tls = authority.issue("node-1", "agent")
        async with agent_stream(running.port, "node-1", tls) as agent:
            await agent.hello()
        async with agent_stream(running.port, "node-2", tls) as agent:
            with pytest.raises((EOFError, grpc.aio.AioRpcError)):
                await agent.hello()
            code, sentence = await agent.end()
        assert code is grpc.StatusCode.PERMISSION_DENIED
        assert "'node-1'" in sentence
        assert "node-2" not in running.runtime.state.nodes

    with_controller(tmp_path, act)


def test_a_viewer_may_look_but_not_isolate(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        agent_tls = authority.issue("node-1", "agent")
        viewer, operator = authority.issue("eve", "viewer"), authority.issue("ann", "operator")
        request = admin_pb2.IsolateRequest(node="node-1", reason="noise", operator="somebody")
        async with agent_stream(running.port, "node-1", agent_tls) as agent:
            await agent.hello()
            async with aio_channel(f"localhost:{running.port}", viewer) as channel:
                admin = admin_pb2_grpc.AdminStub(channel)
                listed = await admin.ListNodes(admin_pb2.ListNodesRequest())
                assert [node.node for node in listed.nodes] == ["node-1"]
                with pytest.raises(grpc.aio.AioRpcError, match="eve is viewer"):
                    await admin.Isolate(request)
            async with aio_channel(f"localhost:{running.port}", operator) as channel:
                isolated = await admin_pb2_grpc.AdminStub(channel).Isolate(request)
        (claim,) = isolated.summary.claims
        assert claim.reason == "ann: noise"

    with_controller(tmp_path, act)


def test_a_page_may_look_for_people_and_give_no_order(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        page, viewer = authority.issue("fleet.example", "page"), authority.issue("eve", "viewer")
        ann = admin_pb2.Person(name="ann", role="operator")
        asked = admin_pb2.ReadLogsRequest(job="none", asked_for=ann)
        async with aio_channel(f"localhost:{running.port}", page) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            assert not (await admin.ListNodes(admin_pb2.ListNodesRequest())).nodes
            with pytest.raises(grpc.aio.AioRpcError, match="no job named 'none'"):
                await admin.ReadLogs(asked).read()
            for order in (
                admin.Pause(admin_pb2.PauseRequest(reason="noise")),
                admin.StopJob(admin_pb2.StopJobRequest(job="none", reason="noise")),
            ):
                with pytest.raises(grpc.aio.AioRpcError, match=r"fleet\.example is page"):
                    await order
        async with aio_channel(f"localhost:{running.port}", viewer) as channel:
            with pytest.raises(grpc.aio.AioRpcError, match="for certificates of the role page"):
                await admin_pb2_grpc.AdminStub(channel).ReadLogs(asked).read()

    with_controller(tmp_path, act)


def test_a_viewer_may_see_snapshots_but_not_have_a_job_forgotten(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        agent_tls = authority.issue("node-1", "agent")
        viewer, operator = authority.issue("eve", "viewer"), authority.issue("ann", "operator")
        joined = fleet_pb2.LauncherJoined(
            token_sha256="00", nodes_min=2, nodes_max=2, processes_per_node=1, replica_nodes=1
        )
        left = fleet_pb2.LauncherLeft(reason="interrupted", by_user=True)
        forget = admin_pb2.ForgetJobRequest(job="train", operator="somebody")
        async with agent_stream(running.port, "node-1", agent_tls) as agent:
            await agent.healthy()
            await agent.record(2, launcher_joined=joined)
            await agent.record(3, launcher_left=left)
            await agent.acknowledged(3)
            async with aio_channel(f"localhost:{running.port}", viewer) as channel:
                admin = admin_pb2_grpc.AdminStub(channel)
                shown = await admin.GetSnapshots(admin_pb2.GetSnapshotsRequest(job="train"))
                assert shown.state == "ended"
                request = admin_pb2.ListCopiesRequest(job="train")
                assert [copy async for copy in admin.ListCopies(request)] == []
                with pytest.raises(grpc.aio.AioRpcError, match="eve is viewer"):
                    await admin.ForgetJob(forget)
            assert running.runtime.state.newest("train").ending.forgotten_by == ""
            async with aio_channel(f"localhost:{running.port}", operator) as channel:
                assert not (await admin_pb2_grpc.AdminStub(channel).ForgetJob(forget)).dropped
        assert running.runtime.state.newest("train").ending.forgotten_by == "ann"

    with_controller(tmp_path, act)


def test_an_agent_may_make_no_call_of_the_admin_service(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        tls = authority.issue("node-1", "agent")
        async with aio_channel(f"localhost:{running.port}", tls) as channel:
            stub = admin_pb2_grpc.AdminStub(channel)
            for method in _METHODS:
                assert await _code(stub, method) is grpc.StatusCode.PERMISSION_DENIED, method.name
        assert running.runtime.state.nodes == {}

    with_controller(tmp_path, act)


_METHODS: tuple[MethodDescriptor, ...] = tuple(
    admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods
)


async def _code(stub: admin_pb2_grpc.AdminStub, method: MethodDescriptor) -> grpc.StatusCode:
    """Return how a call ends that asks for nothing."""
    answer = getattr(stub, method.name)(GetMessageClass(method.input_type)(), timeout=30)
    try:
        _ = [one async for one in answer] if method.server_streaming else await answer
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def test_without_a_certificate_of_the_authority_nobody_gets_in(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        del authority
        (tmp_path / "other").mkdir()
        stranger = Authority(tmp_path / "other").issue("node-1", "agent")
        stranger = replace(stranger, ca=tmp_path / "ca.pem")
        async with aio_channel(f"localhost:{running.port}", stranger) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await admin.ListNodes(admin_pb2.ListNodesRequest(), timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    with_controller(tmp_path, act)


def test_a_new_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        (tmp_path / "new").mkdir()
        successor = Authority(tmp_path / "new")
        client = successor.issue("ann", "operator")
        served = successor.issue("controller", "operator")
        for new, old in (("ca.pem", "ca.pem"), ("controller.pem", "controller.pem")):
            (tmp_path / old).write_bytes((tmp_path / "new" / new).read_bytes())
        assert served.key is not None
        (tmp_path / "controller.key").write_bytes(served.key.read_bytes())
        async with aio_channel(f"localhost:{running.port}", client) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            detail = await admin.GetController(admin_pb2.GetControllerRequest(), timeout=30)
        assert detail.term == 1

    with_controller(tmp_path, act)


def test_a_certificate_whose_authority_was_replaced_asks_nothing_more(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        request = admin_pb2.GetControllerRequest()
        client = authority.issue("ann", "operator")
        async with aio_channel(f"localhost:{running.port}", client) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            await admin.GetController(request)
            (tmp_path / "new").mkdir()
            Authority(tmp_path / "new")
            (tmp_path / "ca.pem").write_bytes((tmp_path / "new" / "ca.pem").read_bytes())
            with pytest.raises(grpc.aio.AioRpcError, match="authority of the certificate") as told:
                await admin.GetController(request)
        assert told.value.code() is grpc.StatusCode.UNAUTHENTICATED

    with_controller(tmp_path, act)


def test_a_certificate_of_an_authority_below_the_trusted_one_asks_as_before(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        client = authority.below().issue("ann", "operator", "below")
        async with aio_channel(f"localhost:{running.port}", client) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            assert (await admin.GetController(admin_pb2.GetControllerRequest())).term == 1

    with_controller(tmp_path, act)


@pytest.mark.long
def test_who_connects_and_says_nothing_is_ended(tmp_path: Path) -> None:
    async def act(running: Controller, _: Authority) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        async with asyncio.timeout(2 * HANDSHAKE_S):
            assert await reader.read() == b""
        writer.close()

    with_controller(tmp_path, act)


@pytest.mark.parametrize("replaced", ["certificate", "authority"])
def test_a_stream_whose_certificate_counts_no_more_ends_and_its_node_is_not_silent(
    replaced: str, tmp_path: Path
) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        watch = StreamCertificates(
            running.parts.fleet.sessions, tmp_path / "ca.pem", now_s=lambda: now_s[0]
        )
        now_s, ends = [datetime.now(UTC).timestamp()], datetime.now(UTC) + timedelta(seconds=600)
        await watch.end_stale_streams()
        tls = authority.issue("node-1", "agent", ends=ends)
        told: list[TakenEvent] = []
        running.runtime.listen(told.append)
        async with agent_stream(running.port, "node-1", tls) as agent:
            await agent.healthy()
            await watch.end_stale_streams()
            if replaced == "authority":
                authority = renew_authority(tmp_path)
            else:
                now_s[0] += 601
            await watch.end_stale_streams()
            code, sentence = await agent.end()
        assert code is grpc.StatusCode.ABORTED
        assert "another stream takes the one that the agent's files have now" in sentence
        newer = authority.issue("node-1", "agent", "newer")
        async with agent_stream(running.port, "node-1", newer) as agent:
            await agent.hello()
            # Until then a node whose stream has ended is not told to be gone.
            await asyncio.sleep(RENEWED_S + 0.5)
            node = running.runtime.state.nodes["node-1"]
            assert (node.liveness.connected, node.liveness.silent_since_ns) == (True, 0)
            await watch.end_stale_streams()
            await agent.finding(2)
            await agent.acknowledged(2)
        assert not [one for one in told[:-1] if isinstance(one.event, NodeDisconnected)]

    with_controller(tmp_path, act)


def test_who_keeps_the_channel_gets_no_other_stream_on_it(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        watch = running.parts.fleet.certificates
        assert watch is not None
        tls = authority.issue("node-1", "agent")
        async with aio_channel(f"localhost:{running.port}", tls) as channel:
            connect = fleet_pb2_grpc.FleetStub(channel).Connect
            agent = AgentStream("node-1", connect())
            await agent.hello()
            renew_authority(tmp_path)
            await watch.end_stale_streams()
            assert (await agent.end())[0] is grpc.StatusCode.ABORTED
            agent = AgentStream("node-1", connect())
            await agent.send_hello()
            code, sentence = await agent.end()
            assert code is grpc.StatusCode.UNAUTHENTICATED
            assert "the authority of the certificate was replaced" in sentence

    with_controller(tmp_path, act)


def test_an_agent_that_does_not_come_again_is_a_silent_node(tmp_path: Path) -> None:
    async def act(running: Controller, authority: Authority) -> None:
        gone = asyncio.Event()

        def note(taken: TakenEvent) -> None:
            if isinstance(taken.event, NodeDisconnected):
                gone.set()

        running.runtime.listen(note)
        tls = authority.issue("node-1", "agent")
        async with agent_stream(running.port, "node-1", tls) as agent:
            await agent.healthy()
            renew_authority(tmp_path)
            await StreamCertificates(
                running.parts.fleet.sessions, tmp_path / "ca.pem"
            ).end_stale_streams()
            await agent.end()
            assert running.runtime.state.nodes["node-1"].liveness.connected
            async with asyncio.timeout(30):
                await gone.wait()
        assert not running.runtime.state.nodes["node-1"].liveness.connected

    with_controller(tmp_path, act)


def renew_authority(folder: Path) -> Authority:
    """Have the controller and its agents trust another authority, which is returned."""
    (folder / "new").mkdir()
    successor = Authority(folder / "new")
    served = successor.issue("controller", "operator")
    assert served.certificate is not None
    assert served.key is not None
    (folder / "controller.pem").write_bytes(served.certificate.read_bytes())
    (folder / "controller.key").write_bytes(served.key.read_bytes())
    (folder / "ca.pem").write_bytes((folder / "new" / "ca.pem").read_bytes())
    return successor
