"""GPU on PCI Express: lanes or speed that were lost, and packets that had to be sent again."""

import math

from everstep_agent.detectors.gpus.judging import GpuFault, judge_gpu, shown
from everstep_agent.detectors.gpus.reading import GpuReading
from everstep_agent.detectors.readings.counters import Counters, RateWindow
from everstep_common.judging.condition import MINUTE_NS, Condition
from everstep_common.judging.findings import Mode, SuggestedAction
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment

_MINUTE_S = 60
# Replays per lane and minute that DCGM accepts: bit error rate 1e-12 at 8, 16 and 32 GT/s.
_REPLAYS_PER_LANE = {3: 0.48, 4: 0.96, 5: 1.92}

CONDITIONS = (
    Condition(
        name="GpuPcieReplays",
        window_ns=MINUTE_NS,
        component="gpu/PCI",
        meaning="more packets were sent again in the last minute than lanes times 0.48 (PCIe 3), "
        "0.96 (4) or 1.92 (5), rounded up",
        source="DCGM's health watch: the bit error rate that PCI Express allows",
        clears_when="five minutes with fewer",
        clear_after=30,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuPcieWidth",
        component="gpu/PCI",
        meaning="the GPU has fewer lanes than it and its slot could have, in three polls (30 s)",
        source="the device's own maximum",
        clears_when="it has all of them in three polls",
        raise_after=3,
        clear_after=3,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuPcieGeneration",
        component="gpu/PCI",
        meaning="the GPU works, and its link is slower than it and its slot could be, in six polls "
        "(a minute)",
        source="the device's own maximum; an idle GPU slows its link down by design",
        clears_when="the link is at its full speed in one poll",
        raise_after=6,
        mode=Mode.ADVISE,
    ),
)

_REPAIR = SuggestedAction.REPAIR_HARDWARE
_REPLAYS = GpuFault("GpuPcieReplays", "many PCIe replays", "PCIe replays a minute", action=_REPAIR)
_WIDTH = GpuFault("GpuPcieWidth", "PCIe lanes were lost", "PCIe width", action=_REPAIR)
_GENERATION = GpuFault(
    "GpuPcieGeneration", "the PCIe link is too slow", "PCIe generation under load", action=_REPAIR
)


class PcieDetector:
    """Detector of the links between GPUs and host."""

    def __init__(self, busy_ratio: float, counters: Counters) -> None:
        self._busy_ratio = busy_ratio
        self._counters = counters
        self._minutes: dict[str, RateWindow] = {}

    def judge(self, gpu: GpuReading, now: Moment) -> list[Judgement]:
        """Judge one complete look at one GPU."""
        return [
            self._judge_replays(gpu, now),
            _judge_width(gpu),
            _judge_generation(gpu, self._busy_ratio),
        ]

    def _judge_replays(self, gpu: GpuReading, now: Moment) -> Judgement:
        per_lane = _REPLAYS_PER_LANE.get(gpu.pcie_generation_max or 0)
        if gpu.pcie_replays is None or per_lane is None or not gpu.pcie_width_max:
            return judge_gpu(gpu, _REPLAYS, None, "the driver counts no replays")
        growth = self._counters.add_reading(f"{gpu.component}/pcie_replays", gpu.pcie_replays, now)
        recent = round(growth.per_second * min(growth.seconds, _MINUTE_S))
        window = self._minutes.setdefault(gpu.pci, RateWindow(_MINUTE_S * 10**9))
        count = window.add_growth(recent, now.boot_ns)
        accepted = math.ceil(per_lane * gpu.pcie_width_max)
        evidence = f"{count} replays in the last minute, {accepted} are accepted"
        return judge_gpu(gpu, _REPLAYS, count > accepted, evidence)


def _judge_width(gpu: GpuReading) -> Judgement:
    width, most = gpu.pcie_width, gpu.pcie_width_max
    if not width or not most:
        return judge_gpu(gpu, _WIDTH, None, "the driver does not say")
    return judge_gpu(gpu, _WIDTH, width < most, f"{width} of {most} lanes")


def _judge_generation(gpu: GpuReading, busy_ratio: float) -> Judgement:
    now, most = gpu.pcie_generation, gpu.pcie_generation_max
    evidence = f"PCIe {shown(now)}, it could be {shown(most)}"
    if not now or not most:
        return judge_gpu(gpu, _GENERATION, None, evidence)
    if now >= most:
        return judge_gpu(gpu, _GENERATION, False, evidence)
    if gpu.busy_ratio is None or gpu.busy_ratio < busy_ratio:
        return judge_gpu(gpu, _GENERATION, None, f"{evidence}; it is idle")
    return judge_gpu(gpu, _GENERATION, True, evidence)
