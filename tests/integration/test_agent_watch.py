"""The watch over real probes: a fake driver library, a tree like sysfs, a process that is gone."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.detector import GpuDetector
from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.node_view import NodeView
from everstep_agent.monitoring.findings import Findings
from everstep_agent.monitoring.node_watch import link_sources
from everstep_agent.monitoring.watch_loop import Watch
from everstep_agent.orders import CheckResult, run_check
from everstep_agent.probes.gpus.nvml import NvmlDeadlines, NvmlProbe
from everstep_agent.probes.kernel.kernel_log import Position
from everstep_agent.probes.machine.host import HostProbe
from everstep_agent.sources.gpus import GpuSource
from everstep_agent.sources.host import HostSettings, disk_sources, host_sources
from everstep_agent.sources.kernel_log import KernelLogSource, kernel_log
from everstep_agent.sources.network import NetworkSettings
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_proto.generated import fleet_pb2
from fakes.nvml import FakeDriver
from fakes.sysfs import FakeNode

# Long after the boot: no condition is in its grace.
_NOW = Stamp("boot-1", 3600 * 10**9, 1)
# A driver that answers must not miss its deadline on a busy machine; one that hangs misses any.
_PATIENT = NvmlDeadlines(first_s=15.0, next_s=15.0)
_IMPATIENT = NvmlDeadlines(first_s=0.3, next_s=0.3)


@dataclass
class Bench:
    """A watch, and everything it has said."""

    folder: Path
    host: HostProbe = field(default_factory=HostProbe)
    nvml: NvmlProbe = field(default_factory=lambda: NvmlProbe(NvmlDeadlines()))
    records: list[fleet_pb2.Record] = field(default_factory=list)
    view: NodeView = field(default_factory=NodeView)

    def __post_init__(self) -> None:
        self.book = FindingBook(CONDITIONS)
        self.sysfs = FakeNode(self.folder / "sys", hcas=1, gpus=0)
        self.sysfs.add_ethernet("eth0")
        self.seconds = 0
        self.kmsg = self.folder / "kmsg"
        self.kmsg.touch()
        detector = GpuDetector(GpuLimits(), Counters())
        gpus = GpuSource(self.nvml, self.view, self.sysfs.root, detector, lambda: _NOW)
        gpus.open_findings = lambda: self.book.open_findings
        self.log = KernelLogSource(kernel_log(self.kmsg, "boot-1", Position()), self.view, 10.0)
        sources = (
            self.log.source(1.0),
            *host_sources(
                HostSettings(deadline_s=10.0), self.view, Counters(), lambda: _NOW, self.host
            ),
            *disk_sources(HostSettings(deadline_s=10.0), self.view),
            *link_sources(
                NetworkSettings(sysfs=self.sysfs.root, deadline_s=10.0),
                self.view,
                Counters(),
                self._stamp,
            ),
            *gpus.sources(),
        )
        findings = Findings(self.book, self._record, lambda _: None, lambda: _NOW)
        self.watch = Watch(sources, findings)

    def _record(self, record: fleet_pb2.Record) -> None:
        # How busy the machine of the tests is, is real as well, and nobody's business here.
        if "host" not in (
            record.finding_raised.finding.component,
            record.finding_cleared.component,
        ):
            self.records.append(record)

    def _stamp(self) -> Stamp:
        return replace(_NOW, boot_ns=_NOW.boot_ns + self.seconds * 10**9)

    async def look_a_second_later(self) -> None:
        """Look at everything, as the watch does every second."""
        self.seconds += 1
        await self.watch.probe_now()

    def sees_host(self) -> bool:
        """Return whether the host was read; forgets it."""
        reading, self.view.host = self.view.host, None
        return reading is not None

    async def check(self) -> CheckResult:
        """Do what a RunCheck order does."""
        return await run_check(self.watch.probe_now, self.book.fatal_findings, 60.0)

    def raised(self) -> list[str]:
        """Return the conditions that were raised."""
        found = (r.finding_raised.finding for r in self.records if r.HasField("finding_raised"))
        return [finding.condition for finding in found]

    def cleared(self) -> list[str]:
        """Return the conditions that were cleared."""
        found = (r.finding_cleared for r in self.records if r.HasField("finding_cleared"))
        return [finding.condition for finding in found]


async def _times(count: int, look: Callable[[], Awaitable[object]]) -> None:
    for _ in range(count):
        await look()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(tmp_path, gpus=2)
    yield fake
    fake.close()


def test_a_driver_that_hangs_is_found_while_the_other_probes_go_on_and_cleared_when_it_answers(
    tmp_path: Path, driver: FakeDriver
) -> None:
    async def scenario() -> None:
        nvml = NvmlProbe(_PATIENT, driver.command)
        bench = Bench(tmp_path, nvml=nvml)
        rule = CONDITIONS["DriverHang"]
        try:
            assert (await bench.check()).passed
            driver.hang(True)
            nvml._deadlines = _IMPATIENT
            await _times(rule.raise_after - 1, bench.watch.probe_now)
            assert bench.raised() == ["DriverSilent"]
            assert bench.sees_host()
            assert not (await bench.check()).passed
            assert "DriverHang" in bench.raised()
            assert bench.sees_host()
            driver.hang(False)
            nvml._deadlines = _PATIENT
            assert (await bench.check()).passed
            await _times(rule.clear_after - 1, bench.watch.probe_now)
            assert set(bench.cleared()) == {"DriverSilent", "DriverHang"}
            assert bench.view.gpus is not None
            assert len(bench.view.gpus.gpus) == 2
        finally:
            nvml.close()

    asyncio.run(scenario())


def test_an_infiniband_port_that_goes_down_is_found_at_once_and_fatal_when_it_stays_down(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        await bench.watch.probe_now()
        assert [(link.name, link.kind, link.up) for link in bench.view.links or ()] == [
            ("eth0", "ethernet", True),
            ("lo", "loopback", True),
            ("mlx5_0/1", "infiniband", True),
        ]
        bench.sysfs.set_port("mlx5_0", "DOWN")
        await bench.look_a_second_later()
        await _times(5, bench.look_a_second_later)
        assert bench.raised() == ["LinkDown", "LinkDown"]
        found = [record.finding_raised.finding for record in bench.records]
        assert [finding.severity for finding in found] == [
            fleet_pb2.SEVERITY_DEGRADED,
            fleet_pb2.SEVERITY_FATAL,
        ]
        assert found[1].component == "link/mlx5_0/1"
        assert found[1].evidence == "state 1: DOWN, physical state 2: Polling"
        bench.sysfs.set_port("mlx5_0")
        await _times(CONDITIONS["LinkDown"].clear_after, bench.look_a_second_later)
        assert bench.cleared() == ["LinkDown"]

    asyncio.run(scenario())


def test_errors_of_a_port_are_found_at_the_second_reading(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        await bench.watch.probe_now()
        for reading in (1, 2):
            bench.sysfs.set_counter("mlx5_0", "port_rcv_errors", 1000 * reading)
            await _times(5, bench.look_a_second_later)
        assert bench.raised() == ["IbReceiveErrors"]
        assert bench.records[0].finding_raised.finding.evidence == "200 a second in port_rcv_errors"

    asyncio.run(scenario())


def test_a_fatal_kernel_line_fails_the_check_that_reads_it_and_not_the_next(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        kept: list[tuple[int, list[str]]] = []
        bench.log.on_position = lambda at: kept.append((at.place, bench.raised()))
        await bench.watch.probe_now()
        line = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
        bench.kmsg.write_text(line)
        assert not (await bench.check()).passed
        # The position is kept after the finding, so that a death in between loses nothing.
        assert kept == [(len(line), ["XidFatal"])]
        assert (await bench.check()).passed
        assert bench.book.fatal_findings()

    asyncio.run(scenario())


def test_a_file_of_the_kernel_that_vanishes_is_a_finding_and_fails_a_check(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])

    async def scenario() -> None:
        bench = Bench(tmp_path, host=HostProbe(pid=child.pid))
        assert (await bench.check()).passed
        child.kill()
        child.wait()
        result = await bench.check()
        assert not result.passed
        assert f"/proc/{child.pid}/stat" in result.message
        await _times(CONDITIONS["ProbeFailed"].raise_after, bench.watch.probe_now)
        assert bench.raised() == ["ProbeFailed"]

    asyncio.run(scenario())


def test_a_counter_that_is_hidden_is_unknown_and_the_others_are_read(tmp_path: Path) -> None:
    # Without the counters of the network and the disks, as some containers have it.
    for name in ("meminfo", "stat", "loadavg", "self"):
        (tmp_path / name).symlink_to(Path("/proc") / name)
    reading = HostProbe(tmp_path).read()
    assert (reading.network_received_bytes, reading.disk_read_bytes) == (None, None)
    assert reading.memory_total_bytes > 0
    assert HostProbe().read().network_received_bytes is not None


def test_a_log_that_is_not_there_or_not_allowed_is_a_note_of_the_inventory(tmp_path: Path) -> None:
    async def scenario() -> str:
        bench = Bench(tmp_path)
        await bench.watch.probe_now()
        assert not [n for n in bench.view.inventory(Path("/proc")).notes if "kernel log" in n]
        bench.kmsg.unlink()
        await bench.watch.probe_now()
        return " ".join(bench.view.inventory(Path("/proc")).notes)

    assert f"kernel log: {tmp_path}/kmsg does not exist" in asyncio.run(scenario())
