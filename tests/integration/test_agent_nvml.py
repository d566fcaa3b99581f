"""The GPU probe against a real shared library, in a real child process."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.detectors.gpu import GpusReading
from everstep_agent.probes.nvml import DriverHangError, NvmlDeadlines, NvmlProbe, ProbeError
from fakes.nvml import FakeDriver

# A driver that answers must not miss its deadline on a busy machine.
_DEADLINES = NvmlDeadlines(first_s=30.0, next_s=30.0)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(tmp_path, gpus=8)
    yield fake
    fake.close()


@pytest.fixture
def probe(driver: FakeDriver) -> Iterator[NvmlProbe]:
    probe = NvmlProbe(_DEADLINES, driver.command)
    yield probe
    probe.close()


def test_every_gpu_is_read(probe: NvmlProbe) -> None:
    reading = probe.read()
    assert reading.driver == "570.00"
    assert [gpu.pci for gpu in reading.gpus][:2] == ["0000:3b:00.0", "0000:3c:00.0"]
    first = reading.gpus[0]
    assert (first.name, first.temperature_c, first.power_w) == (
        "NVIDIA H100 80GB HBM3",
        40.0,
        300.0,
    )
    assert (first.busy_ratio, first.recovery_action, first.ecc_corrected) == (0.97, 0, 3)
    assert first.memory_used_bytes == 40 << 30


def test_a_lost_gpu_keeps_its_name_and_says_so(driver: FakeDriver, probe: NvmlProbe) -> None:
    probe.read()
    driver.set(3, lost=1)
    lost = probe.read().gpus[3]
    assert lost.error == "GPU is lost"
    assert lost.pci == "0000:3e:00.0"


def test_what_the_driver_asks_for_is_read(driver: FakeDriver, probe: NvmlProbe) -> None:
    driver.set(1, recovery=2, remap_failed=1)
    gpu = probe.read().gpus[1]
    assert (gpu.recovery_action, gpu.remap_failed, gpu.remap_pending) == (2, True, False)


def test_a_hung_driver_misses_its_deadline_and_the_process_is_replaced(
    driver: FakeDriver,
) -> None:
    probe = NvmlProbe(NvmlDeadlines(first_s=30.0, next_s=0.5), driver.command)
    try:
        probe.read()
        driver.hang(True)
        with pytest.raises(DriverHangError, match=r"within 0\.5 s"):
            probe.read()
        driver.hang(False)
        assert len(probe.read().gpus) == 8
        assert probe.replaced == 1
    finally:
        probe.close()


def test_a_process_that_dies_is_replaced(driver: FakeDriver) -> None:
    probe = NvmlProbe(_DEADLINES, ("false",))
    with pytest.raises(ProbeError, match="ended"):
        probe.read()
    probe.close()


def test_nonsense_is_refused() -> None:
    probe = NvmlProbe(_DEADLINES, (sys.executable, "-c", "print('[1, 2]', flush=True); input()"))
    with pytest.raises(ProbeError, match="nonsense"):
        probe.read()
    probe.close()


def test_without_a_library_that_is_a_fact_and_no_process_is_kept() -> None:
    now_s = 0.0
    probe = NvmlProbe(_DEADLINES, clock_s=lambda: now_s)
    reading = probe.read()
    if reading.gpus:
        pytest.skip("this machine has NVIDIA GPUs")
    assert reading == GpusReading(absent=reading.absent)
    assert probe.read() is reading
