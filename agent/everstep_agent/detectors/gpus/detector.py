"""GPU detector: runs the detectors of all GPU subjects over one answer of the NVIDIA driver."""

from everstep_agent.detectors.gpus.clocks import ClockDetector
from everstep_agent.detectors.gpus.fabric import judge_fabric
from everstep_agent.detectors.gpus.fleet import judge_fleet
from everstep_agent.detectors.gpus.judging import judge
from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.gpus.memory import EccRates, WornMemory, judge_uncorrected
from everstep_agent.detectors.gpus.nvlink import NvlinkDetector
from everstep_agent.detectors.gpus.pcie import PcieDetector
from everstep_agent.detectors.gpus.presence import LOST, RESET_DEMANDED, judge_gpus
from everstep_agent.detectors.gpus.processes import judge_owners
from everstep_agent.detectors.gpus.reading import GpusReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment


class KnownGpus:
    """GPUs that this agent has seen."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def judge(self, reading: GpusReading) -> list[Judgement]:
        """Judge one complete look; a driver that lists none at all is another condition's."""
        if not reading.gpus:
            return []
        named = [gpu for gpu in reading.gpus if gpu.uuid]
        self._known.update(gpu.component for gpu in named)
        missing = sorted(self._known - {gpu.component for gpu in named})
        judgements = [
            judge(component, LOST, True, "the driver does not list it any more")
            for component in missing
        ]
        # A GPU that was lost before its PCI address was known was reported under its index.
        judgements += [
            judge(f"gpu/index-{gpu.index}", fault, False, f"it is GPU {gpu.pci}")
            for gpu in named
            for fault in (LOST, RESET_DEMANDED)
        ]
        return judgements


class GpuDetector:
    """Detector of the node's NVIDIA GPUs; slow values are judged when they were read."""

    def __init__(self, limits: GpuLimits, counters: Counters, expected: int = 0) -> None:
        self._limits = limits
        self._expected = expected
        self._rates = EccRates(limits, counters)
        self._worn = WornMemory(limits, counters)
        self._clocks = ClockDetector(limits)
        self._pcie = PcieDetector(limits.busy_ratio, counters)
        self._known = KnownGpus()
        self._nvlink = NvlinkDetector(limits, counters)

    def judge(self, reading: GpusReading, on_bus: int, now: Moment) -> list[Judgement]:
        """Judge one answer; ``on_bus`` NVIDIA GPUs are on the PCI bus."""
        judgements = judge_gpus(reading, self._expected, on_bus)
        gpus = [gpu for gpu in reading.gpus if not gpu.error]
        for gpu in gpus:
            judgements += self._rates.judge(gpu, now)
            judgements.append(judge_uncorrected(gpu))
        judgements += self._clocks.judge(gpus, now)
        if not reading.complete:
            return judgements
        for gpu in gpus:
            judgements += (*self._worn.judge(gpu, now), *self._pcie.judge(gpu, now))
            judgements += judge_fabric(gpu)
        judgements += self._nvlink.judge(gpus, now)
        judgements += self._known.judge(reading)
        return judgements + judge_fleet(gpus) + judge_owners(reading, self._limits)
