"""A generation is over on a node when its GPUs are free: real NVML process, real node of jobs."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from everstep_agent.detectors.gpus.reading import GpusReading
from everstep_agent.detectors.gpus.release import LEFT
from everstep_agent.jobs.job.context import Environment
from everstep_agent.probes.gpus.nvml import NvmlDeadlines, NvmlProbe
from everstep_common.clock import boot_ns
from everstep_common.judging.judgement import Faulty
from everstep_common.launcher_messages import RankProcess, Started, Stop
from everstep_common.reports import GenerationStopped, LauncherLeft
from everstep_proto.generated import fleet_pb2
from fakes.nvml import FakeDriver
from integration.vault_world import (
    TIMEOUT_S,
    Client,
    Kept,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
)

_GIB = 1 << 30
_PCI = "gpu/0000:3b:00.0"


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(tmp_path, gpus=2)
    for gpu in range(2):
        fake.set(gpu, memory_used=0)
    yield fake
    fake.close()


class Gpus:
    """The GPUs as the daemon has them, but for the detectors; looks are counted."""

    def __init__(self, driver: FakeDriver) -> None:
        self.probe = NvmlProbe(NvmlDeadlines(first_s=30.0, next_s=30.0), command=driver.command)
        self.seen: GpusReading | None = None
        self.looks = 0
        self.looked = asyncio.Event()

    def newest(self) -> GpusReading | None:
        return self.seen

    async def read(self) -> GpusReading:
        reading = await self.probe.read_aside()
        self.looks += 1
        self.looked.set()
        return reading

    async def until_looked(self, times: int) -> None:
        """Return when the memory was looked at so often from now on."""
        wanted = self.looks + times
        async with asyncio.timeout(TIMEOUT_S):
            while self.looks < wanted:
                self.looked.clear()
                await self.looked.wait()


@dataclass
class World:
    """A node with GPUs, and its launcher."""

    node: Node
    control: Client
    gpus: Gpus

    def stopped(self) -> list[fleet_pb2.GenerationStopped]:
        """Return what the controller was told of generations that are over."""
        records = self.node.outlet.bodies("generation_stopped")
        return [record.generation_stopped for record in records]

    def order_stop(self) -> None:
        self.node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))

    async def stop(self) -> None:
        """Order the end of the first generation, and have its launcher say that it has come."""
        self.order_stop()
        while not isinstance(await self.control.hear(), Stop):
            continue
        await self.control.tell(GenerationStopped(1, 29501, boot_ns()))


@asynccontextmanager
async def _trained(folder: Path, driver: FakeDriver, **values: object) -> AsyncIterator[World]:
    """A node on which a rank, of which no process is left, has used the first GPU."""
    gpus = Gpus(driver)
    gpus.seen = await gpus.read()
    world = Environment(stored_fds={}, keeper=Kept(), gpus=gpus)
    run = folder / "run"
    run.mkdir()
    rank = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        async with running(settings(run, **values), world=world) as node, launcher(node) as control:
            node.order(start_generation=plan(1))
            await control.hear()
            await control.tell(Started(1, (RankProcess(0, rank.pid),), boot_ns()))
            await node.outlet.until(lambda: node.outlet.bodies("phase_reached"))
            driver.set(0, memory_used=60 * _GIB)
            driver.set_processes(0, [(rank.pid, 60 * _GIB)])
            gpus.seen = await gpus.read()
            rank.kill()
            await rank.wait()
            yield World(node, control, gpus)
    finally:
        gpus.probe.close()


@lived
async def test_a_generation_whose_gpus_are_free_is_over_at_the_first_look(
    tmp_path: Path, driver: FakeDriver
) -> None:
    async with _trained(tmp_path, driver) as world:
        driver.set(0, memory_used=0)
        driver.set_processes(0, [])
        before = world.gpus.looks
        await world.stop()
        await world.node.outlet.until(world.stopped)
        assert [tuple(one.held_devices) for one in world.stopped()] == [()]
        assert world.gpus.looks == before + 1


@pytest.mark.parametrize("listed", [True, False], ids=["a dead process", "no process"])
@lived
async def test_memory_that_becomes_free_later_is_waited_for(
    tmp_path: Path, driver: FakeDriver, listed: bool
) -> None:
    async with _trained(tmp_path, driver) as world:
        if not listed:
            driver.set_processes(0, [])
        await world.stop()
        await world.gpus.until_looked(2)
        world.order_stop()  # the controller asks again: that brings no other answer
        await world.gpus.until_looked(2)
        assert world.stopped() == []
        driver.set(0, memory_used=0)
        driver.set_processes(0, [])
        await world.node.outlet.until(world.stopped)
        assert [tuple(one.held_devices) for one in world.stopped()] == [()]
        assert _left(world) == []


@lived
async def test_a_gpu_that_never_becomes_free_is_told_with_the_end_and_is_a_finding(
    tmp_path: Path, driver: FakeDriver
) -> None:
    async with _trained(tmp_path, driver, device_release_timeout_s=0.5) as world:
        await world.stop()
        await world.node.outlet.until(world.stopped)
        assert [tuple(one.held_devices) for one in world.stopped()] == [(_PCI,)]
        assert _left(world) == [_PCI]
        world.order_stop()
        await world.node.outlet.until(lambda: len(world.stopped()) == 2)


@lived
async def test_nobody_waits_for_memory_when_the_user_has_ended_the_job(
    tmp_path: Path, driver: FakeDriver
) -> None:
    async with _trained(tmp_path, driver) as world:
        await world.control.tell(LauncherLeft("Ctrl-C", by_user=True))
        await world.node.outlet.until(lambda: world.node.outlet.bodies("launcher_left"))
        before = world.gpus.looks
        await world.stop()
        await world.node.outlet.until(world.stopped)
        assert world.gpus.looks == before


@lived
async def test_a_driver_that_hangs_is_no_reason_to_wait_for_ever(
    tmp_path: Path, driver: FakeDriver
) -> None:
    async with _trained(tmp_path, driver, device_release_timeout_s=0.5) as world:
        driver.hang(True)
        await world.stop()
        await world.node.outlet.until(world.stopped)
        assert [tuple(one.held_devices) for one in world.stopped()] == [()]
        driver.hang(False)


def _left(world: World) -> list[str]:
    judged = world.node.jobs.judgements(())
    return [
        one.key.component for one in judged if isinstance(one, Faulty) and one.key.condition == LEFT
    ]
