"""NVIDIA GPUs from the driver's library to the findings: events, and a driver that hangs."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.detector import GpuDetector
from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.kernel import KernelLine, XidSettings, judge_kernel
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.ipc.line_process import PidfdExits
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.probes.gpus.nvml import NvmlDeadlines, NvmlProbe
from everstep_agent.sources.gpus import GpuSource
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.findings import Finding
from everstep_common.judging.judgement import Judgement
from fakes.nvml import FakeDriver
from fakes.waits import eventually

_NOW = Stamp("boot-1", 3600 * 10**9, 1)
_PATIENT = NvmlDeadlines(first_s=30.0, next_s=30.0)


@dataclass
class Bench:
    """The sources of the GPUs in a watch, and its findings."""

    driver: FakeDriver
    folder: Path
    deadlines: NvmlDeadlines = _PATIENT
    view: NodeView = field(default_factory=NodeView)

    def __post_init__(self) -> None:
        self.book = FindingBook(CONDITIONS)
        self.probe = NvmlProbe(self.deadlines, self.driver.command)
        self.settings = XidSettings(load_tables())
        detector = GpuDetector(GpuLimits(), Counters())
        self.source = GpuSource(self.probe, self.view, self.folder, detector, lambda: _NOW)
        self.source.open_findings = lambda: self.book.open_findings
        self.source.judge_lines = self._judge
        findings = Findings(self.book, lambda _: None, lambda _: None, lambda: _NOW)
        self.watch = Watch(self.source.sources(), findings)

    def _judge(self, lines: Sequence[KernelLine]) -> Sequence[Judgement]:
        return judge_kernel(lines, self.settings, _NOW)

    def open(self) -> dict[str, Finding]:
        """Return the open findings by condition."""
        return {known.finding.condition: known.finding for known in self.book.open_findings}

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait until something holds."""
        await eventually(true)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(tmp_path, gpus=2)
    yield fake
    fake.close()


def _watching(bench: Bench, scenario: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await bench.watch.probe_now()
        running = asyncio.create_task(bench.watch.run())
        try:
            await scenario()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            bench.probe.close()
            leaving = bench.probe._leaving
            assert leaving is not None
            assert await PidfdExits().within(leaving.process, 20.0)

    asyncio.run(run())


def test_an_xid_reaches_the_findings_from_the_driver_where_the_kernel_log_cannot_be_read(
    driver: FakeDriver, tmp_path: Path
) -> None:
    bench = Bench(driver, tmp_path)
    bench.view.kernel_log = "/dev/kmsg: permission denied"

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        driver.event(1, "xid", 79)
        await bench.until(lambda: "XidFatal" in bench.open())
        assert bench.open()["XidFatal"].component == "gpu/0000:3c:00.0"
        print(f"event to finding: {(loop.time() - began) * 1000:.1f} ms")

    _watching(bench, scenario)


def test_an_xid_is_found_even_while_the_driver_hangs(driver: FakeDriver, tmp_path: Path) -> None:
    bench = Bench(driver, tmp_path)
    bench.view.kernel_log = "not there"

    async def scenario() -> None:
        # Not every call: the process may still be asking for events.
        driver.hang_call("nvmlDeviceGetMemoryInfo_v2")
        driver.event(0, "xid", 119)
        await bench.until(lambda: "XidFatal" in bench.open())
        driver.hang_call("")

    _watching(bench, scenario)


def test_an_xid_that_the_kernel_log_tells_as_well_is_left_to_it(
    driver: FakeDriver, tmp_path: Path
) -> None:
    bench = Bench(driver, tmp_path)
    bench.view.kernel_log = ""

    async def scenario() -> None:
        driver.event(1, "xid", 79)
        driver.event(1, "ecc_double")
        driver.set(1, ecc_uncorrected=1)
        # The event of the memory error came later, and has been judged.
        await bench.until(lambda: "GpuEccUncorrected" in bench.open())
        assert set(bench.open()) == {"GpuEccUncorrected"}

    _watching(bench, scenario)


def test_errors_of_caches_are_found_and_over_when_the_driver_was_loaded_again(
    driver: FakeDriver, tmp_path: Path
) -> None:
    bench = Bench(driver, tmp_path)

    async def scenario() -> None:
        driver.set(1, sram_secded=2, sram_secded_aggregate=2)
        driver.event(1, "ecc_double")
        await bench.until(lambda: "GpuSramUncorrected" in bench.open())
        driver.set(1, sram_secded=0)
        driver.event(1, "ecc_double")
        await bench.until(lambda: "GpuSramUncorrected" not in bench.open())

    _watching(bench, scenario)


def test_an_ecc_event_has_everything_read_at_once(driver: FakeDriver, tmp_path: Path) -> None:
    bench = Bench(driver, tmp_path)

    async def scenario() -> None:
        driver.set(0, remap_banks_exhausted=1)
        driver.event(0, "ecc_double")
        await bench.until(lambda: "RowRemapExhausted" in bench.open())

    _watching(bench, scenario)


def test_a_hang_is_a_finding_and_ends_when_the_driver_answers(
    driver: FakeDriver, tmp_path: Path
) -> None:
    bench = Bench(driver, tmp_path, NvmlDeadlines(first_s=30.0, next_s=0.2))

    async def scenario() -> None:
        driver.hang(True)
        bench.probe._deadlines = NvmlDeadlines(first_s=0.2, next_s=0.2)
        for _ in range(CONDITIONS["DriverHang"].raise_after):
            await bench.watch.probe_now(["gpu"])
        assert "within 0.2 s" in bench.open()["DriverHang"].evidence
        driver.hang(False)
        bench.probe._deadlines = _PATIENT
        for _ in range(CONDITIONS["DriverHang"].clear_after):
            await bench.watch.probe_now(["gpu"])
        assert bench.open() == {}

    _watching(bench, scenario)
