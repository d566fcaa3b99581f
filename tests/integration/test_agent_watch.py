"""The watch over real probes: a fake driver library, a tree like sysfs, a process that is gone."""

import asyncio
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from everstep_agent.checks import run_check
from everstep_agent.detectors.book import FindingBook
from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.links import LinkDetector
from everstep_agent.findings import Findings
from everstep_agent.inventory import NodeView
from everstep_agent.orders import CheckResult
from everstep_agent.probes.host import HostProbe
from everstep_agent.probes.kernel_log import Position, kernel_log
from everstep_agent.probes.nvml import NvmlDeadlines, NvmlProbe
from everstep_agent.sources.gpus import GpuSource
from everstep_agent.sources.host import host_sources
from everstep_agent.sources.kernel_log import KernelLogSource
from everstep_agent.sources.network import network_sources
from everstep_agent.watch import Watch
from everstep_common.clock import Stamp
from everstep_proto.generated import fleet_pb2
from fakes.nvml import FakeDriver

# Long after the boot: no condition is in its grace.
_NOW = Stamp("boot-1", 3600 * 10**9, 1)
# A driver that answers must not miss its deadline on a busy machine; one that hangs misses any.
_PATIENT = NvmlDeadlines(first_s=15.0, next_s=15.0)
_IMPATIENT = NvmlDeadlines(first_s=0.3, next_s=0.3)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


class FakeSysfs:
    """A node with an Ethernet interface and one InfiniBand port, as the kernel shows them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        interface = root / "class/net/eth0"
        for name, text in (("operstate", "up"), ("speed", "25000"), ("type", "1")):
            _write(interface / name, text)
        (interface / "device").mkdir()
        self.port = root / "class/infiniband/mlx5_0/ports/1"
        _write(self.port / "link_layer", "InfiniBand")
        _write(self.port / "rate", "400 Gb/sec (4X NDR)")
        _write(root / "class/infiniband/mlx5_0/node_guid", "b83f:d203:0012:3456")
        self.up(True)

    def up(self, up: bool) -> None:
        """Let the port be active, or polling for a peer."""
        _write(self.port / "state", "4: ACTIVE" if up else "1: DOWN")
        _write(self.port / "phys_state", "5: LinkUp" if up else "2: Polling")


@dataclass
class Bench:
    """A watch, and everything it has said."""

    folder: Path
    host: HostProbe = field(default_factory=HostProbe)
    nvml: NvmlProbe = field(default_factory=lambda: NvmlProbe(NvmlDeadlines()))
    records: list[fleet_pb2.Record] = field(default_factory=list)
    view: NodeView = field(default_factory=NodeView)

    def __post_init__(self) -> None:
        self.book = FindingBook()
        self.sysfs = FakeSysfs(self.folder / "sys")
        self.kmsg = self.folder / "kmsg"
        self.kmsg.touch()
        gpus = GpuSource(self.nvml, self.view, self.sysfs.root, 20.0)
        gpus.boot_id, gpus.open_findings = "boot-1", lambda: self.book.open_findings
        self.log = KernelLogSource(kernel_log(self.kmsg, "boot-1", Position()), self.view, 10.0)
        sources = (
            self.log.source(1.0),
            *host_sources(self.host, self.view, 10.0),
            *network_sources(self.sysfs.root, LinkDetector(), self.view, 10.0),
            gpus.source(),
        )
        findings = Findings(self.book, self.records.append, lambda _: None, lambda: _NOW)
        self.watch = Watch(sources, findings)

    def sees_host(self) -> bool:
        """Return whether the host was read; forgets it."""
        reading, self.view.host = self.view.host, None
        return reading is not None

    async def check(self) -> CheckResult:
        """Do what a RunCheck order does."""
        return await run_check(self.watch.look, self.book.fatal, 60.0)

    def raised(self) -> list[str]:
        """Return the conditions that were raised."""
        found = (r.finding_raised for r in self.records if r.HasField("finding_raised"))
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
            await _times(rule.raise_after - 1, bench.watch.look)
            assert bench.raised() == []
            assert bench.sees_host()
            assert not (await bench.check()).passed
            assert bench.raised() == ["DriverHang"]
            assert bench.sees_host()
            driver.hang(False)
            nvml._deadlines = _PATIENT
            assert (await bench.check()).passed
            await _times(rule.clear_after - 1, bench.watch.look)
            assert bench.cleared() == ["DriverHang"]
            assert bench.view.gpus is not None
            assert len(bench.view.gpus.gpus) == 2
        finally:
            nvml.close()

    asyncio.run(scenario())


def test_an_infiniband_port_that_goes_down_is_debounced_found_and_cleared(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench, rule = Bench(tmp_path), CONDITIONS["LinkDown"]
        await bench.watch.look()
        assert [(link.name, link.kind, link.up) for link in bench.view.links or ()] == [
            ("eth0", "ethernet", True),
            ("mlx5_0/1", "infiniband", True),
        ]
        bench.sysfs.up(False)
        await _times(rule.raise_after - 1, bench.watch.look)
        bench.sysfs.up(True)
        await bench.watch.look()
        bench.sysfs.up(False)
        await _times(rule.raise_after - 1, bench.watch.look)
        assert bench.raised() == []
        await bench.watch.look()
        assert bench.raised() == ["LinkDown"]
        finding = bench.records[0].finding_raised
        assert (finding.component, finding.severity) == (
            "link/mlx5_0/1",
            fleet_pb2.SEVERITY_FATAL,
        )
        assert finding.evidence == "state 1: DOWN, physical state 2: Polling"
        bench.sysfs.up(True)
        await _times(rule.clear_after, bench.watch.look)
        assert bench.cleared() == ["LinkDown"]

    asyncio.run(scenario())


def test_a_fatal_kernel_line_fails_the_check_that_reads_it_and_not_the_next(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        kept: list[tuple[int, list[str]]] = []
        bench.log.on_position = lambda at: kept.append((at.place, bench.raised()))
        await bench.watch.look()
        line = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"
        bench.kmsg.write_text(line)
        assert not (await bench.check()).passed
        # The position is kept after the finding, so that a death in between loses nothing.
        assert kept == [(len(line), ["XidFatal"])]
        assert (await bench.check()).passed
        assert bench.book.fatal()

    asyncio.run(scenario())


def test_what_psutil_cannot_read_is_a_finding_and_fails_a_check(tmp_path: Path) -> None:
    child = subprocess.Popen(["sleep", "60"])

    async def scenario() -> None:
        bench = Bench(tmp_path, host=HostProbe(psutil.Process(child.pid)))
        assert (await bench.check()).passed
        child.kill()
        child.wait()
        result = await bench.check()
        assert not result.passed
        assert "NoSuchProcess" in result.message
        await _times(CONDITIONS["ProbeFailed"].raise_after, bench.watch.look)
        assert bench.raised() == ["ProbeFailed"]

    asyncio.run(scenario())


@pytest.fixture
def thin_proc(tmp_path: Path) -> Iterator[None]:
    """A /proc without the counters of the network, as some containers have it."""
    folder, real = tmp_path / "proc", psutil.PROCFS_PATH
    folder.mkdir()
    for name in ("meminfo", "stat", str(psutil.Process().pid)):
        (folder / name).symlink_to(Path(real) / name)
    probe = HostProbe()
    assert probe.read().network_received_bytes is not None
    psutil.PROCFS_PATH = str(folder)
    yield
    psutil.PROCFS_PATH = real


@pytest.mark.usefixtures("thin_proc")
def test_a_counter_that_is_hidden_is_unknown_and_the_others_are_read() -> None:
    reading = HostProbe().read()
    assert reading.network_received_bytes is None
    assert reading.memory_total_bytes > 0


def test_a_log_that_is_not_there_or_not_allowed_is_a_note_of_the_inventory(tmp_path: Path) -> None:
    async def scenario() -> str:
        bench = Bench(tmp_path)
        await bench.watch.look()
        assert not [n for n in bench.view.inventory(Path("/proc")).notes if "kernel log" in n]
        bench.kmsg.unlink()
        await bench.watch.look()
        return " ".join(bench.view.inventory(Path("/proc")).notes)

    assert f"kernel log: {tmp_path}/kmsg does not exist" in asyncio.run(scenario())
