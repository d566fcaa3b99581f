"""GPU detector: runs the detectors of all GPU subjects over one answer of the NVIDIA driver."""

from collections.abc import Mapping
from dataclasses import replace

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
from everstep_agent.detectors.gpus.reading import GpuReading, GpusReading
from everstep_agent.detectors.gpus.vanished import VanishedMetrics
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment


class KnownGpus:
    """GPUs that this agent has seen."""

    def __init__(self) -> None:
        self._known: set[str] = set()
        self._identities: dict[str, GpuReading] = {}

    def named(self, reading: GpusReading) -> GpusReading:
        """Return a reading in which a lost GPU has the name that it had.

        A process that is started after a GPU was lost cannot learn its address: it knows its number
        only. That GPU is one of those that are missing, and no other device.
        """
        self._identities |= {gpu.uuid: gpu for gpu in reading.gpus if gpu.uuid}
        nameless = [gpu for gpu in reading.gpus if not gpu.uuid]
        if not nameless:
            return reading
        here = {gpu.uuid for gpu in reading.gpus}
        missing = [gpu for uuid, gpu in self._identities.items() if uuid not in here]
        missing.sort(key=lambda gpu: gpu.index)
        names: dict[int, GpuReading] = {}
        for gpu in nameless:
            same = next((one for one in missing if one.index == gpu.index), None)
            if known := same or (missing[0] if len(missing) == len(nameless) else None):
                names[gpu.index] = known
        return replace(reading, gpus=tuple(_with_name(gpu, names) for gpu in reading.gpus))

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


def _with_name(gpu: GpuReading, names: Mapping[int, GpuReading]) -> GpuReading:
    known = None if gpu.uuid else names.get(gpu.index)
    if known is None:
        return gpu
    return replace(gpu, uuid=known.uuid, pci=known.pci, name=known.name)


class GpuDetector:
    """Detector of the node's NVIDIA GPUs; slow values are judged when they were read."""

    def __init__(self, limits: GpuLimits, counters: Counters, expected: int = 0) -> None:
        self._limits = limits
        self._expected = expected
        self._rates = EccRates(limits, counters)
        self._worn = WornMemory(limits, counters)
        self._clocks = ClockDetector(limits)
        self._vanished = VanishedMetrics()
        self._pcie = PcieDetector(limits.busy_ratio, counters)
        self._known = KnownGpus()
        self._nvlink = NvlinkDetector(limits, counters)

    def named(self, reading: GpusReading) -> GpusReading:
        """Return a reading in which each GPU that is known has its name."""
        return self._known.named(reading)

    def judge(self, reading: GpusReading, on_bus: int, now: Moment) -> list[Judgement]:
        """Judge one answer; ``on_bus`` NVIDIA GPUs are on the PCI bus."""
        judgements = judge_gpus(reading, self._expected, on_bus)
        gpus = [gpu for gpu in reading.gpus if not gpu.error]
        for gpu in gpus:
            judgements += self._rates.judge(gpu, now)
            judgements.append(judge_uncorrected(gpu))
        judgements += self._clocks.judge(gpus, now)
        judgements += self._vanished.judge(gpus)
        if not reading.complete:
            return judgements
        for gpu in gpus:
            judgements += (*self._worn.judge(gpu, now), *self._pcie.judge(gpu, now))
            judgements += judge_fabric(gpu)
        judgements += self._nvlink.judge(gpus, now)
        judgements += self._known.judge(reading)
        return judgements + judge_fleet(gpus) + judge_owners(reading, self._limits)
