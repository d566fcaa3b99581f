"""A node in virtual time: readings as its probes would make them, detectors and book the real ones.

Eight GPUs, eight HCAs, an Ethernet interface, a disk, a clock, two services and a kernel log. A
fault changes readings for as long as it lasts; nothing else ever does.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.detector import GpuDetector
from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.gpus.reading import (
    ClockReason,
    GpuReading,
    GpusReading,
    NvlinkReading,
)
from everstep_agent.detectors.host.clock import ClockReading, judge_clock
from everstep_agent.detectors.host.service_limits import ServiceLimits
from everstep_agent.detectors.host.services import (
    ServiceDetector,
    ServicesReading,
    UnitReading,
)
from everstep_agent.detectors.host.usage import HostReading, judge_memory
from everstep_agent.detectors.kernel import KernelLine, XidSettings, judge_kernel
from everstep_agent.detectors.links.detector import LinkDetector
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.infiniband import InfinibandDetector
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.tables.fault_tables import load_tables
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.findings import Severity
from everstep_common.judging.judgement import Judgement

BOOT = "boot-1"
# Long after the boot: no condition is in its grace.
START_S = 3600
GPUS = HCAS = 8
_SLOW_LOOK_S = 10
_COUNTERS_S = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: which lengths mean nothing, which are findings, and of what.

    ``severity`` is the worst that a long one reaches; ``short_raises`` is what a short one is
    allowed to raise, below that severity.
    """

    name: str
    short_s: int
    long_s: int
    raises: frozenset[str]
    targets: int = 1
    severity: Severity = Severity.DEGRADED
    short_raises: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the schedule, in seconds since the simulation began."""

    kind: Kind
    target: int
    begins_s: int
    ends_s: int
    long: bool

    def active(self, at_s: int) -> bool:
        """Return whether it holds now."""
        return self.begins_s <= at_s < self.ends_s


def _kind(name: str, short_s: int, long_s: int, *raises: str, targets: int = 1) -> Kind:
    return Kind(name, short_s, long_s, frozenset(raises), targets)


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        _kind("power brake", 2, 20, "GpuPowerBrake", targets=GPUS),
        _kind("remap pending", 1, 5, "RowRemapPending", targets=GPUS),
        _kind("heat", 6, 40, "GpuTemperatureHigh", targets=GPUS),
        _kind("nvlink inactive", 15, 90, "NvlinkDown", targets=GPUS),
        _kind("lanes lost", 15, 90, "GpuPcieWidth", targets=GPUS),
        _kind("ecc errors", 1, 180, "GpuEccCorrectedRate", "GpuEccCorrectedStorm", targets=GPUS),
        Kind("gpu lost", 2, 6, frozenset({"GpuLost"}), GPUS, Severity.FATAL),
        Kind(
            "port down",
            3,
            60,
            frozenset({"LinkDown"}),
            HCAS,
            Severity.FATAL,
            frozenset({"LinkDown"}),
        ),
        _kind("symbol errors", 1, 30, "IbSymbolErrors", "IbSymbolErrorsPerHour", targets=HCAS),
        _kind("memory low", 5, 30, "MemoryLow"),
        _kind("clock adrift", 100, 600, "ClockUnsynchronized"),
        _kind("service failed", 5, 60, "ServiceDown"),
        # An event: it has no length.
        _kind("out of memory", 1, 1, "NodeOutOfMemory"),
    )
}

# What kernels log all day, and what a program's own fault leaves behind: never a finding.
_HARMLESS = (
    "usb 1-1: new high-speed USB device number 2 using xhci_hcd",
    "NVRM: Xid (PCI:0000:11:00): 43, pid=77, name=python, Ch 00000008",
    "IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready",
    "EXT4-fs (nvme0n1p1): mounted filesystem with ordered data mode. Quota mode: none.",
    "perf: interrupt took too long (2501 > 2500), lowering kernel.perf_event_max_sample_rate",
)


@dataclass
class SoakNode:
    """The node: it is looked at once a second, and says what it told."""

    faults: Sequence[Fault]
    seed: int
    told: list[tuple[int, str, str, str, Severity | None]] = field(default_factory=list)
    at_s: int = 0

    def __post_init__(self) -> None:
        counters = Counters()
        self.book = FindingBook(CONDITIONS)
        self._rng = random.Random(self.seed)
        self._gpus = GpuDetector(GpuLimits(), counters, GPUS)
        self._links = LinkDetector((), counters)
        self._infiniband = InfinibandDetector(counters, self._links.history)
        self._services = ServiceDetector(ServiceLimits(), counters)
        self._xids = XidSettings(load_tables())
        self._healthy_gpus = tuple(_gpu(index) for index in range(GPUS))
        self._ecc = [0] * GPUS
        self._symbols = [0] * HCAS
        self._begin = {fault.begins_s: fault for fault in self.faults}
        self._active: list[Fault] = []

    def run(self, until_s: int) -> None:
        """Let time pass, a look a second."""
        while self.at_s < until_s:
            self._step()
            self.at_s += 1

    def _now(self) -> Stamp:
        boot_ns = (START_S + self.at_s) * 10**9
        return Stamp(BOOT, boot_ns, boot_ns)

    def _step(self) -> None:
        self._active = [fault for fault in self._active if fault.active(self.at_s)]
        if (begun := self._begin.get(self.at_s)) is not None:
            self._active.append(begun)
        now = self._now()
        changes = self.book.enter_judgements(self._judgements(now), now)
        for known in changes.raised:
            finding = known.finding
            said = (finding.condition, finding.component, finding.severity)
            self.told.append((self.at_s, "raised", *said))
        for cleared in changes.cleared:
            self.told.append(
                (self.at_s, "cleared", cleared.key.condition, cleared.key.component, None)
            )

    def _judgements(self, now: Stamp) -> list[Judgement]:
        slow = self.at_s % _SLOW_LOOK_S == 0
        judgements = self._gpus.judge(self._read_gpus(complete=slow), GPUS, now)
        judgements += self._links.judge(self._read_links(), now)
        judgements.append(judge_memory(self._read_host()))
        if self.at_s % _COUNTERS_S == 0:
            judgements += self._infiniband.judge(self._read_counters(), now)
        if slow:
            synchronized = not self._is_active("clock adrift")
            judgements += judge_clock(ClockReading(synchronized=synchronized, source="tsc"))
            judgements += self._services.judge(self._read_services(), now)
        judgements += self.book.judge_quiet_events(now)
        return [*judgements, *judge_kernel(list(self._kernel_lines()), self._xids, now)]

    # --- readings --------------------------------------------------------------------------------

    def _targets(self, kind: str) -> set[int]:
        return {fault.target for fault in self._active if fault.kind.name == kind}

    def _is_active(self, kind: str) -> bool:
        return bool(self._targets(kind))

    def _read_gpus(self, *, complete: bool) -> GpusReading:
        gpus = list(self._healthy_gpus)
        for index in self._targets("ecc errors"):
            self._ecc[index] += 2000
        for fault in self._active:
            if (change := _GPU_CHANGES.get(fault.kind.name)) is not None:
                gpus[fault.target] = change(gpus[fault.target])
        counted = tuple(
            gpu if gpu.error else replace(gpu, ecc_corrected=self._ecc[gpu.index]) for gpu in gpus
        )
        return GpusReading(driver="570.124.06", gpus=counted, complete=complete, dead_pids=())

    def _read_links(self) -> list[LinkReading]:
        down = self._targets("port down")
        ports = [_port(index, up=index not in down) for index in range(HCAS)]
        return [*ports, LinkReading(name="eth0", kind="ethernet", up=True, speed_bits_per_s=10**10)]

    def _read_counters(self) -> list[CountersReading]:
        for index in self._targets("symbol errors"):
            self._symbols[index] += 20 * _COUNTERS_S
        return [
            CountersReading(
                link=f"mlx5_{index}/1",
                values={"symbol_error": self._symbols[index], "link_downed": 0},
            )
            for index in range(HCAS)
        ]

    def _read_host(self) -> HostReading:
        available = 1 << 28 if self._is_active("memory low") else 1 << 36
        return HostReading(
            cpu_busy_ratio=0.5,
            load_1m=1.0,
            memory_total_bytes=1 << 37,
            memory_available_bytes=available,
        )

    def _read_services(self) -> ServicesReading:
        failed = self._is_active("service failed")
        state = ("failed", "failed") if failed else ("active", "running")
        return ServicesReading(
            units=(
                UnitReading(
                    name="containerd.service",
                    active=state[0],
                    sub=state[1],
                    file_state="enabled",
                    restarts=0,
                ),
                UnitReading(name="slurmd.service", file_state="enabled", restarts=0),
            )
        )

    def _kernel_lines(self) -> Iterator[KernelLine]:
        if self._rng.random() < 0.01:
            yield KernelLine(self._rng.choice(_HARMLESS))
        begun = self._begin.get(self.at_s)
        if begun is not None and begun.kind.name == "out of memory":
            yield KernelLine(
                "Out of memory: Killed process 4242 (python) total-vm:81920000kB, "
                "anon-rss:80000000kB, file-rss:0kB, shmem-rss:0kB, UID:1000"
            )


def _gpu(index: int) -> GpuReading:
    return GpuReading(
        index=index,
        uuid=f"GPU-{index}",
        name="NVIDIA H100 80GB HBM3",
        pci=f"0000:{index + 1:02x}:00.0",
        memory_bytes=80 << 30,
        max_tlimit_c=0,
        thermal_margin_c=40,
        temperature_c=60.0,
        temperature_max_c=95,
        power_w=600.0,
        power_limit_w=700.0,
        busy_ratio=1.0,
        sm_clock_mhz=1755,
        sm_clock_max_mhz=1980,
        clock_reasons=0,
        recovery_action=0,
        ecc_enabled=True,
        ecc_corrected=0,
        ecc_uncorrected=0,
        remap_pending=False,
        remap_failed=False,
        remapped_uncorrected=0,
        pcie_generation=5,
        pcie_generation_max=5,
        pcie_width=16,
        pcie_width_max=16,
        pcie_replays=0,
        persistence=True,
        memory_used_bytes=70 << 30,
        nvlinks=tuple(
            NvlinkReading(link=link, active=True, recovery_events=0) for link in range(18)
        ),
    )


def _without_link(gpu: GpuReading) -> GpuReading:
    first, *others = gpu.nvlinks
    return replace(gpu, nvlinks=(replace(first, active=False), *others))


_GPU_CHANGES: Mapping[str, Callable[[GpuReading], GpuReading]] = {
    "power brake": lambda gpu: replace(
        gpu, clock_reasons=int(ClockReason.POWER_BRAKE | ClockReason.HARDWARE_SLOWDOWN)
    ),
    "remap pending": lambda gpu: replace(gpu, remap_pending=True),
    "heat": lambda gpu: replace(gpu, thermal_margin_c=-1, temperature_c=96.0),
    "nvlink inactive": _without_link,
    "lanes lost": lambda gpu: replace(gpu, pcie_width=8),
    "gpu lost": lambda gpu: GpuReading(
        index=gpu.index, uuid=gpu.uuid, name=gpu.name, pci=gpu.pci, error="GPU is lost"
    ),
}


def _port(index: int, *, up: bool) -> LinkReading:
    return LinkReading(
        name=f"mlx5_{index}/1",
        kind="infiniband",
        up=up,
        speed_bits_per_s=400 * 10**9 if up else 0,
        detail="state 4: ACTIVE" if up else "state 1: DOWN",
        family="MT4129",
    )
