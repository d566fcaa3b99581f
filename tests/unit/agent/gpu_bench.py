"""GPU readings and the book of findings, in virtual time, for the tests of the GPU detectors."""

from dataclasses import dataclass, field, replace

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.detector import GpuDetector
from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.gpus.reading import (
    FabricReading,
    GpuReading,
    GpusReading,
    NvlinkReading,
)
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.condition import MINUTE_NS, SECOND_NS
from everstep_common.judging.findings import Finding

HEALTHY = GpuReading(
    index=0,
    uuid="GPU-0",
    name="NVIDIA H100 80GB HBM3",
    pci="0000:3b:00.0",
    memory_bytes=80 << 30,
    vbios="96.00",
    inforom="G520",
    sm_clock_max_mhz=1980,
    pcie_generation_max=5,
    pcie_width_max=16,
    temperature_max_c=87,
    memory_temperature_max_c=95,
    max_tlimit_c=0,
    memory_used_bytes=0,
    temperature_c=50.0,
    memory_temperature_c=60.0,
    power_w=600.0,
    busy_ratio=0.97,
    sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    clock_reasons=0,
    recovery_action=0,
    ecc_corrected=0,
    ecc_uncorrected=0,
    remap_pending=False,
    remap_failed=False,
    ecc_enabled=True,
    sram_threshold_exceeded=False,
    sram_parity=0,
    sram_secded=0,
    remapped_corrected=0,
    remapped_uncorrected=0,
    remap_banks_exhausted=0,
    retired_single_bit=0,
    retired_double_bit=0,
    retired_pending=False,
    thermal_margin_c=37,
    power_limit_w=700.0,
    pcie_generation=5,
    pcie_width=16,
    pcie_replays=0,
    nvlinks=tuple(
        NvlinkReading(link=link, active=True, recovery_events=0, replays=0, recoveries=0, crc=0)
        for link in range(4)
    ),
    fabric=FabricReading(state=3, status=0, health_mask=0xAA, health_summary=1),
    persistence=True,
    processes=(),
    graphics_processes=0,
    mig_enabled=False,
)
PEERS = tuple(
    replace(HEALTHY, index=i, uuid=f"GPU-{i}", pci=f"0000:{0x3B + i:x}:00.0") for i in range(4)
)
# Long after the boot: nothing is in its grace.
_START_NS = 3600 * SECOND_NS


@dataclass
class GpuBench:
    """A node with four GPUs, looked at once a second; every look is a complete one."""

    counters: Counters = field(default_factory=Counters)
    expected: int = 0
    boot_id: str = "boot-1"
    boot_ns: int = _START_NS
    limits: GpuLimits = field(default_factory=GpuLimits)

    def __post_init__(self) -> None:
        self.book = FindingBook(CONDITIONS)
        self.detector = GpuDetector(self.limits, self.counters, self.expected)
        self.gpus: tuple[GpuReading, ...] = PEERS
        self.dead_pids: tuple[int, ...] | None = ()

    def says(self, gpu: int = 0, /, **values: object) -> None:
        """Change what a GPU says."""
        changed = replace(self.gpus[gpu], **values)  # type: ignore[arg-type]
        self.gpus = (*self.gpus[:gpu], changed, *self.gpus[gpu + 1 :])

    def link_says(self, gpu: int = 0, /, link: int = 0, **values: object) -> None:
        """Change what one link of a GPU says."""
        links = list(self.gpus[gpu].nvlinks)
        links[link] = replace(links[link], **values)  # type: ignore[arg-type]
        self.says(gpu, nvlinks=tuple(links))

    def look(self, times: int = 1, seconds: int = 1, complete: bool = True) -> None:
        """Look some times, so many seconds apart."""
        for _ in range(times):
            self.boot_ns += seconds * SECOND_NS
            now = Stamp(self.boot_id, self.boot_ns, self.boot_ns)
            reading = GpusReading(
                driver="570.00", gpus=self.gpus, complete=complete, dead_pids=self.dead_pids
            )
            self.book.enter_judgements(self.detector.judge(reading, len(self.gpus), now), now)

    def minutes(self, count: int) -> None:
        """Look every ten seconds for so long."""
        self.look(count * MINUTE_NS // (10 * SECOND_NS), seconds=10)

    def found(self) -> set[str]:
        """Return the conditions that are open."""
        return {known.finding.condition for known in self.book.open_findings}

    def finding(self, condition: str) -> Finding:
        """Return the only open finding of a condition."""
        (found,) = [
            known.finding
            for known in self.book.open_findings
            if known.finding.condition == condition
        ]
        return found


def raise_after(condition: str) -> int:
    """Return how many looks raise a condition."""
    return CONDITIONS[condition].raise_after


def clear_after(condition: str) -> int:
    """Return how many looks clear a condition."""
    return CONDITIONS[condition].clear_after
