"""A node waits as a spare: what a real controller asks of it, and says when it fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_common.judging.findings import Mode
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.settings import Settings
from everstep_controller.service import Controller, Options
from everstep_proto.generated import admin_pb2, admin_pb2_grpc, fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.cli_stage import NODES, begin, launcher
from fakes.controllers import config
from fakes.local_secret import admin_channel
from fakes.waits import eventually

pytestmark = pytest.mark.timeout(90)
_SPARE = "node-3"


@asynccontextmanager
async def _training(
    folder: Path,
) -> AsyncIterator[tuple[AgentStream, "admin_pb2_grpc.AdminAsyncStub"]]:
    """Run a job on two nodes, with a controller that checks who waits five times a second."""
    core = Settings(mode=Mode.ENFORCE, spare_check_interval_ns=200_000_000)
    running = Controller.open(replace(config(folder), core=core), Options(Core, ""))
    await running.start()
    try:
        async with AsyncExitStack() as stack:
            streams = [agent_stream(running.port, name) for name in (*NODES, _SPARE)]
            *members, spare = [await stack.enter_async_context(one) for one in streams]
            for agent in (*members, spare):
                await agent.healthy()
            for agent in members:
                await agent.record(2, launcher_joined=launcher())
            for agent in members:
                await begin(agent)
            await spare.record(2, launcher_joined=launcher())
            channel = admin_channel(running.port)
            await stack.enter_async_context(channel)
            yield spare, admin_pb2_grpc.AdminStub(channel)
    finally:
        await running.stop()


async def _answer(spare: AgentStream, sequence: int, message: str, *, passed: bool) -> None:
    order = await spare.order("run_check")
    assert "/spare-check/" in order.order_id
    finished = fleet_pb2.CheckFinished(order_id=order.order_id, passed=passed, message=message)
    await spare.record(sequence, check_finished=finished)


async def _until(admin: "admin_pb2_grpc.AdminAsyncStub", spares: list[str]) -> admin_pb2.JobDetail:
    async def told() -> admin_pb2.JobDetail | None:
        job: admin_pb2.JobDetail = await admin.GetJob(admin_pb2.GetJobRequest(job="train"))
        return job if list(job.summary.spares) == spares else None

    return await eventually(told)


def test_a_spare_that_fails_is_told_everywhere_and_one_that_passes_is_a_spare(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with _training(tmp_path) as (spare, admin):
            await _until(admin, [_SPARE])
            await _answer(spare, 3, "probe nvml: no answer", passed=False)
            why = "node-3 is no spare: its check failed: probe nvml: no answer"
            job = await _until(admin, [])
            assert [told.startswith(why) for told in job.kept_out] == [True]
            nodes = (await admin.ListNodes(admin_pb2.ListNodesRequest())).nodes
            assert [node.no_spare for node in nodes] == ["", "", why]
            while why not in (await spare.order("hold_launcher")).reason:
                pass
            await _answer(spare, 4, "every probe was read, and nothing fatal", passed=True)
            assert not (await _until(admin, [_SPARE])).kept_out

    asyncio.run(scenario())
