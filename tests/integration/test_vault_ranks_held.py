"""Ranks that SIGKILL does not end: told to the controller, and a finding until they are gone."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_agent.detectors.host.unkillable_ranks import HELD
from everstep_common.clock import boot_ns
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from everstep_common.launcher_messages import RankProcess, Started, Stop
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from integration.vault_clients import Client
from integration.vault_world import Node, launcher, lived, plan, running, settings

KEY = FindingKey("job/demo", HELD)


@asynccontextmanager
async def _rank() -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "import time; time.sleep(600)"
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _held(node: Node, *keys: FindingKey) -> list[Judgement]:
    return [judged for judged in node.jobs.judgements(keys) if judged.key == KEY]


async def _stopped(node: Node, control: Client, generation: int, *left: int) -> list[int]:
    """The launcher stops a generation but for these; return what the controller is told of it."""
    node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=generation))
    while not isinstance(await control.hear(), Stop):
        continue
    await control.tell(GenerationStopped(generation, 29501, boot_ns(), left))

    def told() -> list[fleet_pb2.GenerationStopped]:
        records = node.outlet.bodies("generation_stopped")
        stopped = [record.generation_stopped for record in records]
        return [one for one in stopped if one.generation == generation]

    await node.outlet.until(told)
    return list(told()[0].abandoned)


@lived
async def test_a_rank_that_is_given_up_is_told_and_is_a_finding_until_it_is_gone(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control, _rank() as rank:
        node.order(start_generation=plan(1))
        await control.hear()
        await control.tell(Started(1, (RankProcess(0, rank.pid),), boot_ns()))
        await node.outlet.until(lambda: node.outlet.bodies("phase_reached"))
        assert _held(node) == []

        assert await _stopped(node, control, 1, rank.pid) == [rank.pid]
        (judged,) = _held(node)
        assert isinstance(judged, Faulty)
        assert f"processes {rank.pid};" in judged.finding.evidence

        rank.kill()
        await rank.wait()
        assert _held(node, KEY) == [Healthy(KEY, "the processes are gone")]


@lived
async def test_what_one_generation_left_is_not_told_of_the_next(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control, _rank() as rank:
        node.order(start_generation=plan(1))
        await control.hear()
        await control.tell(Started(1, (RankProcess(0, rank.pid),), boot_ns()))
        await node.outlet.until(lambda: node.outlet.bodies("phase_reached"))
        assert await _stopped(node, control, 1, rank.pid) == [rank.pid]

        node.order(start_generation=plan(2))
        async with _rank() as other:
            await control.hear()
            await control.tell(Started(2, (RankProcess(0, other.pid),), boot_ns()))
            await node.outlet.until(lambda: len(node.outlet.bodies("phase_reached")) == 2)
        assert await _stopped(node, control, 2) == []
        # The first one still runs, whatever became of the second.
        (judged,) = _held(node)
        assert isinstance(judged, Faulty)
        assert f"processes {rank.pid};" in judged.finding.evidence
