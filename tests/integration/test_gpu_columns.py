"""What GPUs did, from the driver's library over the stream to the judges."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from everstep_agent.probes.gpus.nvml import NvmlDeadlines, NvmlProbe
from everstep_agent.sampling import GpuSeconds, pack
from everstep_common.clock import Stamp
from everstep_common.judging.condition import Condition
from everstep_common.reports import GpuColumns
from everstep_common.reports.gpu_columns import HeldBy
from everstep_controller.core.dispatch.core import Core
from everstep_controller.judging.judge import Ruling
from everstep_controller.judging.view import FleetView
from everstep_controller.service import Controller, Options
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import to_wire
from fakes.agent_stream import agent_stream
from fakes.controllers import config
from fakes.nvml import FakeDriver
from fakes.waits import eventually

_DEADLINES = NvmlDeadlines(first_s=30.0, next_s=30.0)
_JUDGE_S = 0.05


@dataclass
class _Recorder:
    """A judge that keeps what it is shown, and finds nothing."""

    views: list[FleetView] = field(default_factory=list)
    conditions: ClassVar[tuple[Condition, ...]] = ()

    def judge(self, view: FleetView) -> Iterator[Ruling]:
        """See Judge."""
        self.views.append(view)
        yield from ()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(tmp_path, gpus=8)
    yield fake
    fake.close()


async def _columns(driver: FakeDriver) -> GpuColumns:
    """Return what the GPUs did in five looks at the driver."""
    probe, seconds = NvmlProbe(_DEADLINES, driver.command), GpuSeconds(busy_ratio=0.9)
    try:
        for _ in range(5):
            seconds.add(await probe.read())
    finally:
        probe.close()
    told = seconds.take_columns()
    assert told is not None
    return told


def test_what_the_driver_says_of_clocks_comes_to_the_judges(
    tmp_path: Path, driver: FakeDriver
) -> None:
    driver.set(3, sm_clock=1230, clock_reasons=0x80 | 0x8)
    driver.set(4, busy=12)
    driver.set(5, sm_clock=None, pcie_width=8)
    driver.set(6, clock_reasons=None)

    async def scenario() -> FleetView:
        recorder, columns = _Recorder(), await _columns(driver)
        quick = replace(config(tmp_path), judge_interval_s=_JUDGE_S)
        running = Controller.open(quick, Options(Core, judges=(recorder,)))
        await running.start()
        try:
            async with agent_stream(running.port, "n1") as stream:
                await stream.hello()
                batch = pack((), Stamp("boot", 1, 1), 1, gpus=columns)
                await stream.send(samples=to_wire(batch, fleet_pb2.SampleBatch))
                await eventually(lambda: any(view.gpus.busy.any() for view in recorder.views))
                # An older agent sends no columns, and its samples are taken.
                older = pack((), Stamp("boot", 2, 2), 1)
                await stream.send(samples=to_wire(older, fleet_pb2.SampleBatch))
                seen = len(recorder.views)
                await eventually(lambda: len(recorder.views) >= seen + 3)
                return recorder.views[-1]
        finally:
            await running.stop()

    view = asyncio.run(scenario())
    gpus = view.gpus
    (slot,) = np.flatnonzero(gpus.busy[:, 0].any(axis=1))
    assert gpus.devices[0][:2] == ("0000:3b:00.0", "0000:3c:00.0")
    assert gpus.models[0] == ("NVIDIA H100 80GB HBM3",) * 8
    assert list(gpus.busy[slot, 0]) == [5, 5, 5, 5, 0, 5, 5, 5]
    assert list(gpus.sm_clock_mhz[slot, 0]) == [1980, 1980, 1980, 1230, 0, 0, 1980, 1980]
    brake, unknown = int(HeldBy.POWER_BRAKE | HeldBy.HARDWARE), int(HeldBy.UNKNOWN)
    assert list(gpus.held[slot, 0]) == [0, 0, 0, brake, 0, 0, unknown, 0]
    assert list(gpus.pcie_width[slot, 0]) == [16, 16, 16, 16, 0, 8, 16, 16]
    assert view.works == (None,)
