"""The agent's GPU probe on a real NVIDIA card and driver."""

import asyncio
import ctypes
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from everstep_agent.detectors.gpus.detector import GpuDetector
from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.gpus.reading import GpusReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.probes.gpus.nvml import COMPLETE_EVERY, NvmlDeadlines, NvmlProbe
from everstep_common.clock import Stamp
from everstep_common.judging.findings import Severity
from everstep_common.judging.judgement import Faulty


def _has_driver() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return any(Path("/dev").glob("nvidia[0-9]*"))


pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(not _has_driver(), reason="needs a GPU and its driver"),
]


def _with_probe(scenario: Callable[[NvmlProbe], Awaitable[None]]) -> None:
    async def run() -> None:
        probe = NvmlProbe(NvmlDeadlines())
        try:
            await scenario(probe)
        finally:
            probe.close()

    asyncio.run(run())


def _keep(reading: GpusReading) -> None:
    """Write what NVML answered where EVERSTEP_KEEP_READING says, to be looked at by people."""
    if place := os.environ.get("EVERSTEP_KEEP_READING"):
        Path(place).write_text(json.dumps(asdict(reading), indent=1))


def test_a_real_driver_says_what_every_gpu_has() -> None:
    async def scenario(probe: NvmlProbe) -> None:
        reading = await probe.read()
        _keep(reading)
        assert reading.driver
        assert reading.gpus
        for gpu in reading.gpus:
            assert gpu.uuid.startswith("GPU-")
            assert gpu.memory_bytes > 0
            assert not gpu.error
            assert gpu.memory_used_bytes is not None
            assert gpu.temperature_c is not None
            assert 0 < gpu.temperature_c < 120
        assert (await probe.read()).complete is False

    _with_probe(scenario)


def test_a_real_node_that_works_has_no_fatal_judgement() -> None:
    async def scenario(probe: NvmlProbe) -> None:
        detector = GpuDetector(GpuLimits(), Counters())
        for second in range(COMPLETE_EVERY + 1):
            reading = await probe.read()
            now = Stamp("boot", (3600 + second) * 10**9, second)
            judged = detector.judge(reading, len(reading.gpus), now)
            faults = [one.finding for one in judged if isinstance(one, Faulty)]
            assert [one for one in faults if one.severity is Severity.FATAL] == []

    _with_probe(scenario)


def test_the_probe_makes_no_context_on_a_gpu() -> None:
    async def scenario(probe: NvmlProbe) -> None:
        await probe.read()
        probe.complete_soon()
        reading = await probe.read()
        assert probe._talk is not None
        pid = probe._talk.child.process.pid
        owners = [one.pid for gpu in reading.gpus for one in gpu.processes or ()]
        assert pid not in owners

    _with_probe(scenario)
