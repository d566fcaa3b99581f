"""A member is about to lose its place: what a real controller tells the spare that takes it."""

import asyncio
from pathlib import Path

import pytest

from everstep_proto.generated import fleet_pb2
from fakes.agent_stream import AgentStream, agent_stream
from fakes.cli_stage import NODES, Stage, launcher, training

pytestmark = pytest.mark.timeout(90)
_SPARE = "node-3"
_ON_NODE = fleet_pb2.JobOnNode(job="train", generation=1, launcher=True)


async def _wait_as_spare(stage: Stage, spare: AgentStream) -> None:
    """Have a third node wait, and step 8 be on both members."""
    await spare.healthy()
    await spare.record(2, launcher_joined=launcher())
    for node in NODES:
        await stage.report(node, 8)
    told = (await spare.wait_for("spare_memory")).spare_memory
    assert not told.ahead


async def _until_ahead(spare: AgentStream, *, wanted: bool) -> fleet_pb2.SpareMemory:
    while bool((told := (await spare.wait_for("spare_memory")).spare_memory).ahead) is not wanted:
        pass
    return told


def test_the_spare_is_told_to_fetch_when_a_stream_ends_and_to_leave_off_when_it_is_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> fleet_pb2.SpareMemory:
        async with (
            training(tmp_path, capsys) as stage,
            agent_stream(stage.running.port, _SPARE) as spare,
        ):
            await _wait_as_spare(stage, spare)
            stage.agents["node-2"].call.cancel()
            told = await _until_ahead(spare, wanted=True)
            async with agent_stream(stage.running.port, "node-2") as again:
                await again.hello(term=1, jobs=(_ON_NODE,))
                await _until_ahead(spare, wanted=False)
            return told

    told = asyncio.run(scenario())
    assert (told.first_rank, told.processes) == (1, 1)
    assert [(one.node, one.rank, one.step) for one in told.ahead] == [("node-1", 1, 8)]
    assert told.ahead[0].bulk_address
    assert told.transfer_key


def test_the_spare_is_told_when_only_a_peer_misses_the_member(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> fleet_pb2.SpareMemory:
        async with (
            training(tmp_path, capsys) as stage,
            agent_stream(stage.running.port, _SPARE) as spare,
        ):
            await _wait_as_spare(stage, spare)
            missed = fleet_pb2.PeerReport(peer="node-2", silent=True)
            await stage.agents["node-1"].send(peer=missed)
            return await _until_ahead(spare, wanted=True)

    told = asyncio.run(scenario())
    assert [(one.node, one.rank, one.step) for one in told.ahead] == [("node-1", 1, 8)]


def test_the_spare_is_told_while_the_job_stops_for_a_node_that_is_isolated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> fleet_pb2.SpareMemory:
        async with (
            training(tmp_path, capsys) as stage,
            agent_stream(stage.running.port, _SPARE) as spare,
        ):
            await _wait_as_spare(stage, spare)
            # Nobody says that the processes are gone: the job goes on stopping.
            await stage.everstep("isolate", "node-2", "--reason", "smoke")
            return await _until_ahead(spare, wanted=True)

    told = asyncio.run(scenario())
    assert (told.first_rank, told.processes) == (1, 1)
    holders = [(one.node, one.rank, one.step) for one in told.ahead]
    assert holders == [("node-2", 1, 8), ("node-1", 1, 8)]
