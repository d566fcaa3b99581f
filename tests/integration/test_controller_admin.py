import asyncio
import os
import shutil
import subprocess
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from everstep_controller.core.events import NodeDisconnected
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.controllers import controller
from fakes.local_secret import admin_channel
from fakes.waits import eventually

pytestmark = pytest.mark.timeout(60)


def test_an_operator_isolates_and_releases_and_everybody_reads_why(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            request = admin_pb2.IsolateRequest(node="node-1", reason="noisy fan", operator="ann")
            isolated = await admin.Isolate(request)
            assert [(c.owner, c.reason) for c in isolated.summary.claims] == [
                ("operator", "ann: noisy fan")
            ]
            why = await admin.Why(admin_pb2.WhyRequest(name="node-1"))
            assert "noisy fan" in why.answer
            assert why.decisions[-1].reason == "NodeIsolated"
            release = admin_pb2.ReleaseRequest(node="node-1", reason="new fan", operator="ann")
            assert not (await admin.Release(release)).summary.claims

    asyncio.run(scenario())


def test_a_node_with_an_open_fatal_finding_is_released_only_in_spite_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            await agent.finding(2, "XidFatal", fleet_pb2.SEVERITY_FATAL)
            await agent.acknowledged(2)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await admin.Release(admin_pb2.ReleaseRequest(node="node-1"))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "everstep release node-1 --accept XidFatal" in str(refused.value.details())
            accepted = admin_pb2.ReleaseRequest(node="node-1", accepted=["XidFatal"])
            assert (await admin.Release(accepted)).summary.state == "validating"

    asyncio.run(scenario())


def test_everybody_sees_who_is_doubtful_who_is_refused_and_which_cluster_it_is(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            async with agent_stream(running.port, "node-1") as agent:
                await agent.healthy()
                shown = (await admin.ListNodes(admin_pb2.ListNodesRequest())).nodes[0]
                assert (shown.doubt, shown.doubted_ns) == ("", 0)
            async with agent_stream(running.port, "node-2") as stranger:
                await stranger.send_hello(cluster_id="another")
                await stranger.end()
            told = await admin.ListNodes(admin_pb2.ListNodesRequest())
            assert [one.node for one in told.refused_agents] == ["node-2"]
            assert "another cluster" in told.refused_agents[0].reason
            assert told.nodes[0].doubt == "its stream has ended"
            assert told.nodes[0].doubted_ns > 0
            why = await admin.Why(admin_pb2.WhyRequest(name="node-1"))
            assert "doubtful: its stream has ended" in why.answer
            detail = await admin.GetController(admin_pb2.GetControllerRequest())
            assert detail.cluster_id == running.runtime.state.cluster_id != ""

    asyncio.run(scenario())


def test_unknown_names_and_missing_reasons_change_nothing(tmp_path: Path) -> None:
    async def scenario() -> list[grpc.StatusCode]:
        async with (
            controller(tmp_path) as running,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            before = running.runtime.seq
            calls: list[Awaitable[object]] = [
                admin.GetNode(admin_pb2.GetNodeRequest(node="x")),
                admin.GetJob(admin_pb2.GetJobRequest(job="x")),
                admin.GetLedger(admin_pb2.GetLedgerRequest(job="x")),
                admin.Why(admin_pb2.WhyRequest(name="x")),
                admin.ListFindings(admin_pb2.ListFindingsRequest(node="x")),
                admin.Isolate(admin_pb2.IsolateRequest(node="x", reason="r")),
                admin.Isolate(admin_pb2.IsolateRequest(node="x", reason=" ")),
                admin.Pause(admin_pb2.PauseRequest(subject="x")),
            ]
            codes = []
            for call in calls:
                with pytest.raises(grpc.aio.AioRpcError) as error:
                    await call
                codes.append(error.value.code())
            assert running.runtime.seq == before
            return codes

    missing, invalid = grpc.StatusCode.NOT_FOUND, grpc.StatusCode.INVALID_ARGUMENT
    assert asyncio.run(scenario()) == [missing] * 6 + [invalid, missing]


def test_a_follower_sees_old_events_and_then_new_ones(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        async with (
            controller(tmp_path) as running,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            watch = admin.WatchEvents(admin_pb2.WatchEventsRequest(follow=True))
            reasons = (event.reason async for event in watch)
            seen = [await anext(reasons)]
            await admin.Pause(admin_pb2.PauseRequest(reason="maintenance", operator="ann"))
            resumed = await admin.Resume(admin_pb2.ResumeRequest(operator="ann"))
            assert list(resumed.paused) == []
            seen += [await anext(reasons), await anext(reasons)]
            watch.cancel()
            return seen

    assert asyncio.run(scenario()) == [
        "ControllerStarted",
        "AutomationPaused",
        "AutomationResumed",
    ]


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "tiny"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False).returncode:
        pytest.skip("the sandbox denies: mounting a small tmpfs")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return ballast


async def report_until_refused(agent: AgentStream) -> None:
    await agent.hello()
    for sequence in range(1, 1000):
        await agent.finding(sequence)
        await agent.acknowledged(sequence)


async def eventually_paused(
    admin: "admin_pb2_grpc.AdminAsyncStub", pause: admin_pb2.PauseRequest
) -> None:
    """The journal looks for space every second; until it has found some, calls are refused."""

    async def paused() -> bool:
        with suppress(grpc.aio.AioRpcError):
            await admin.Pause(pause)
            return True
        return False

    await eventually(paused, what="not writable")


def test_a_full_disk_is_a_finding_and_what_was_refused_is_taken_later(tiny_disk: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tiny_disk) as running,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            pause = admin_pb2.PauseRequest(reason="x" * 1500, operator="ann")
            ballast = fill(tiny_disk)
            async with agent_stream(running.port, "node-1") as agent:
                with pytest.raises((EOFError, grpc.aio.AioRpcError)):
                    await report_until_refused(agent)
                assert (await agent.end())[0] is grpc.StatusCode.UNAVAILABLE
            with pytest.raises(grpc.aio.AioRpcError, match="cannot be written"):
                await admin.Pause(pause)
            found = await admin.ListFindings(admin_pb2.ListFindingsRequest(node="controller"))
            assert [line.condition for line in found.findings] == ["JournalFull"]
            ballast.unlink()
            await eventually_paused(admin, pause)
            found = await admin.ListFindings(admin_pb2.ListFindingsRequest())
            assert [line.condition for line in found.findings] == ["AutomationPaused"]
            async with agent_stream(running.port, "node-1") as agent:
                welcome = await agent.hello()
                await agent.finding(welcome.acknowledged + 1)
                await agent.acknowledged(welcome.acknowledged + 1)

    asyncio.run(scenario())


def test_a_node_that_is_heard_is_not_declared_lost_and_a_silent_one_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with controller(tmp_path) as running, admin_channel(running.port) as channel:
            admin = admin_pb2_grpc.AdminStub(channel)
            request = admin_pb2.DeclareLostRequest(node="node-1", reason="dark", operator="ann")
            ended = asyncio.Event()
            running.runtime.listen(
                lambda taken: ended.set() if isinstance(taken.event, NodeDisconnected) else None
            )
            async with agent_stream(running.port, "node-1") as agent:
                await agent.healthy()
                with pytest.raises(grpc.aio.AioRpcError, match="everstep isolate") as refused:
                    await admin.DeclareLost(request)
                assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            async with asyncio.timeout(10):
                await ended.wait()
            assert (await admin.DeclareLost(request)).state == "lost"
            node = running.runtime.state.nodes["node-1"]
            assert (node.liveness.lost_by, node.reason) == ("ann", "ann says so: dark")

    asyncio.run(scenario())


def test_a_node_that_is_connected_is_not_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with (
            controller(tmp_path) as running,
            agent_stream(running.port, "node-1") as agent,
            admin_channel(running.port) as channel,
        ):
            admin = admin_pb2_grpc.AdminStub(channel)
            await agent.healthy()
            request = admin_pb2.RemoveNodeRequest(node="node-1", reason="sold", operator="ann")
            with pytest.raises(grpc.aio.AioRpcError, match="stop its agent first") as refused:
                await admin.RemoveNode(request)
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "node-1" in running.runtime.state.nodes

    asyncio.run(scenario())
