"""Whatever a driver answers: the process that asks it goes on, and its answers can be judged."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everstep_agent.detectors.gpus.detector import GpuDetector
from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.probes.gpus.nvml import NvmlDeadlines, NvmlProbe
from everstep_common.clock import Stamp
from fakes.nvml import NAMES, FakeDriver

# What the stub itself uses as a length stays within its arrays.
_BOUNDED = {"processes": 16, "graphics_processes": 16, "links": 18, "mig_devices": 60_000}
_CODES = st.sampled_from([0, 0, 0, 0, 1, 2, 3, 4, 6, 10, 13, 15, 16, 17, 27, 999, 12345])
_ANY = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)


def _value(name: str) -> st.SearchStrategy[int | None]:
    if name == "error":
        return _CODES
    return st.integers(0, _BOUNDED[name]) if name in _BOUNDED else _ANY


_CHANGES = st.lists(
    st.sampled_from(NAMES).flatmap(lambda name: st.tuples(st.just(name), _value(name))), max_size=12
)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(tmp_path, gpus=2)
    yield fake
    fake.close()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


def test_no_answer_of_a_driver_breaks_anything(
    driver: FakeDriver, loop: asyncio.AbstractEventLoop
) -> None:
    probe = NvmlProbe(NvmlDeadlines(first_s=60.0, next_s=60.0), driver.command)
    detector = GpuDetector(GpuLimits(), Counters())
    second = 3600

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(_CHANGES)
    def run(changes: list[tuple[str, int | None]]) -> None:
        nonlocal second
        driver.reset(1)
        for name, value in changes:
            driver.set(1, **{name: value})
        probe.complete_soon()
        reading = loop.run_until_complete(probe.read())
        assert [gpu.index for gpu in reading.gpus] == [0, 1]
        assert not reading.gpus[0].error
        second += 1
        detector.judge(reading, 2, Stamp("boot", second * 10**9, second))

    try:
        run()
        assert probe.replaced == 0
    finally:
        probe.close()
        if probe._leaving is not None:
            probe._leaving.process.wait(20)
