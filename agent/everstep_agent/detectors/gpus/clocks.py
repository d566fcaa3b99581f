"""GPU clocks: slowed by heat, by power, by the hardware, or for no reason that the GPU gives."""

from collections import deque
from collections.abc import Sequence
from statistics import median

from everstep_agent.detectors.gpus.judging import GpuFault, judge_gpu, shown
from everstep_agent.detectors.gpus.limits import DEFAULTS, GpuLimits
from everstep_agent.detectors.gpus.reading import ClockReason, GpuReading
from everstep_common.judging.condition import MINUTE_NS, Condition
from everstep_common.judging.findings import Mode, SuggestedAction
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment

_SLOWDOWN_MINUTES = 10
# Fewest other GPUs to compare with: of two GPUs nobody can say which one is slow.
_PEERS_MIN = 2

# Plain numbers: the operators of an enumeration take ten times as long.
_BRAKED = int(ClockReason.POWER_BRAKE)
_HEATED = int(ClockReason.HARDWARE_THERMAL | ClockReason.SOFTWARE_THERMAL)
_HARDWARE = int(ClockReason.HARDWARE_SLOWDOWN | ClockReason.HARDWARE_THERMAL) | _BRAKED
# Reasons that the GPU itself gives for low clocks; each raises another condition than this one.
_EXPLAINED = _HARDWARE | _HEATED | int(ClockReason.SOFTWARE_POWER_CAP)

CONDITIONS = (
    Condition(
        name="GpuHardwareSlowdown",
        window_ns=10 * MINUTE_NS,
        component="gpu/PCI",
        meaning="the hardware slowed the GPU down (heat, power brake or another cause) in "
        f"{DEFAULTS.slowdown_minutes} of the last {_SLOWDOWN_MINUTES} minutes",
        source="gpud: 0.6 events a minute over ten minutes",
        clears_when="fewer of the last ten minutes have one",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuPowerBrake",
        component="gpu/PCI",
        meaning="the power supply's brake holds the clocks down in three consecutive polls",
        source="NVSentinel issue 1666: two GPUs a node held down for 36 hours, found by hand",
        clears_when="the brake is off for a minute",
        raise_after=3,
        clear_after=60,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuThermalSlowdown",
        component="gpu/PCI",
        meaning="heat holds the clocks down (hardware or software) in 60 consecutive polls",
        source="ours; DCGM warns of any, which its users report as noise (DCGM issue 270)",
        clears_when="no heat holds them down for a minute",
        raise_after=60,
        clear_after=60,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuTemperatureHigh",
        component="gpu/PCI",
        meaning="the GPU or its memory is at the highest temperature at which it may work, or has "
        f"{DEFAULTS.thermal_margin_c} °C or less left to it, in ten polls",
        source="the GPU's own limits (nvmlDeviceGetTemperatureThreshold, field 196)",
        clears_when="it is below for a minute",
        raise_after=10,
        clear_after=60,
    ),
    Condition(
        name="GpuClocksLow",
        component="gpu/PCI",
        meaning=f"a busy GPU's clock is below {DEFAULTS.clock_ratio:.0%} of the median of the "
        "node's other busy GPUs, and the GPU gives no reason, in 60 polls",
        source="ours: comparison with its peers",
        clears_when="its clock is above again in 60 polls while it is busy",
        raise_after=60,
        clear_after=60,
    ),
)

_SLOWDOWN = GpuFault(
    "GpuHardwareSlowdown",
    "the hardware slows the GPU down again and again",
    "hardware slowdown in most minutes",
    action=SuggestedAction.REPAIR_HARDWARE,
)
_BRAKE = GpuFault(
    "GpuPowerBrake",
    "the power brake holds the clocks down",
    "clock event reasons",
    action=SuggestedAction.REPAIR_HARDWARE,
)
_THERMAL = GpuFault("GpuThermalSlowdown", "heat holds the clocks down", "clock event reasons")
_HOT = GpuFault("GpuTemperatureHigh", "too hot", "the GPU's own temperature limits")
_LOW = GpuFault("GpuClocksLow", "slower than its peers, and gives no reason", "median of the peers")


class SlowdownMinutes:
    """In how many of the newest minutes the hardware slowed one GPU down."""

    def __init__(self) -> None:
        self._minutes: deque[int] = deque()

    def add_poll(self, slowed: bool, now: Moment) -> int:
        """Add a poll; return the number of minutes."""
        minute = now.boot_ns // MINUTE_NS
        if slowed and (not self._minutes or self._minutes[-1] != minute):
            self._minutes.append(minute)
        while self._minutes and self._minutes[0] <= minute - _SLOWDOWN_MINUTES:
            self._minutes.popleft()
        return len(self._minutes)


class ClockDetector:
    """Detector of clocks and temperatures of the node's GPUs, poll after poll."""

    def __init__(self, limits: GpuLimits) -> None:
        self._limits = limits
        self._slowdowns: dict[str, SlowdownMinutes] = {}

    def judge(self, gpus: Sequence[GpuReading], now: Moment) -> list[Judgement]:
        """Judge one look at the GPUs that answer."""
        judgements: list[Judgement] = []
        for gpu in gpus:
            judgements.append(self._judge_slowdown(gpu, now))
            judgements += _judge_reasons(gpu)
            judgements.append(_judge_heat(gpu, self._limits.thermal_margin_c))
        return judgements + self._judge_clocks(gpus)

    def _judge_slowdown(self, gpu: GpuReading, now: Moment) -> Judgement:
        slowed = gpu.throttled_by(_HARDWARE)
        minutes = self._slowdowns.setdefault(gpu.pci, SlowdownMinutes()).add_poll(bool(slowed), now)
        holds = None if slowed is None else minutes >= self._limits.slowdown_minutes
        return judge_gpu(gpu, _SLOWDOWN, holds, f"{minutes} of {_SLOWDOWN_MINUTES} minutes")

    def _judge_clocks(self, gpus: Sequence[GpuReading]) -> list[Judgement]:
        busy = [gpu for gpu in gpus if _busy(gpu, self._limits.busy_ratio)]
        clocks = [gpu.sm_clock_mhz for gpu in busy if gpu.sm_clock_mhz]
        return [self._judge_clock(gpu, clocks) for gpu in busy]

    def _judge_clock(self, gpu: GpuReading, clocks: Sequence[int]) -> Judgement:
        clock = gpu.sm_clock_mhz
        if not clock or len(clocks) <= _PEERS_MIN:
            return judge_gpu(gpu, _LOW, None, "nothing to compare with")
        peers = list(clocks)
        peers.remove(clock)
        usual = median(peers)
        evidence = f"{clock} MHz, the median of {len(peers)} busy peers is {usual:g} MHz"
        if gpu.throttled_by(_EXPLAINED):
            return judge_gpu(gpu, _LOW, None, f"{evidence}; it gives a reason")
        return judge_gpu(gpu, _LOW, clock < usual * self._limits.clock_ratio, evidence)


def _busy(gpu: GpuReading, ratio: float) -> bool:
    # A slice of a GPU has clocks of its own making; the whole's say nothing.
    return gpu.busy_ratio is not None and gpu.busy_ratio >= ratio and not gpu.mig_enabled


def _judge_reasons(gpu: GpuReading) -> tuple[Judgement, ...]:
    reasons = f"clock event reasons {shown(gpu.clock_reasons and hex(gpu.clock_reasons))}"
    return (
        judge_gpu(gpu, _BRAKE, gpu.throttled_by(_BRAKED), reasons),
        judge_gpu(gpu, _THERMAL, gpu.throttled_by(_HEATED), reasons),
    )


def _judge_heat(gpu: GpuReading, margin_c: int) -> Judgement:
    known = [
        (value, limit)
        for value, limit in (
            (gpu.temperature_c, gpu.temperature_max_c),
            (gpu.memory_temperature_c, gpu.memory_temperature_max_c),
        )
        if value is not None and limit
    ]
    left = [limit - value for value, limit in known]
    if gpu.thermal_margin_c is not None:
        # Newer GPUs tell the distance to their limit, and the distance at which they slow down.
        left.append(gpu.thermal_margin_c - (gpu.max_tlimit_c or 0))
    if not left:
        return judge_gpu(gpu, _HOT, None, "the GPU names no limit")
    if min(left) > margin_c:
        return judge_gpu(gpu, _HOT, False, "below the GPU's own limit")
    evidence = f"{shown(gpu.temperature_c, ' °C')}, {min(left):g} °C left to the GPU's own limit"
    return judge_gpu(gpu, _HOT, True, evidence)
