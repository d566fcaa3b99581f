"""GPU memory: corrected and uncorrected errors, remapped rows, retired pages."""

from everstep_agent.detectors.gpus.judging import GpuFault, above, at_least, judge, judge_gpu, shown
from everstep_agent.detectors.gpus.limits import DEFAULTS, GpuLimits
from everstep_agent.detectors.gpus.reading import GpuReading
from everstep_agent.detectors.readings.counters import Counters, RateWindow
from everstep_common.judging.condition import MINUTE_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment

_RATE_S, _STORM_S = 300, 60
_SECOND_NS = 10**9
_WEEK_NS = 7 * 24 * 3600 * _SECOND_NS

CONDITIONS = (
    Condition(
        name="RowRemapFailed",
        component="gpu/PCI",
        meaning="the driver reports a failed row remapping",
        source="NVIDIA: a failed remapping means replacement",
        clears_when="the driver reports no failed row remapping in ten polls",
        raise_after=2,
        clear_after=10,
        mode=Mode.ENFORCE,
    ),
    Condition(
        name="RowRemapPending",
        component="gpu/PCI",
        meaning="the driver reports a row remapping that waits for a reset",
        source="NVIDIA's GPU memory error management",
        clears_when="the driver reports no pending row remapping in ten polls",
        raise_after=2,
        clear_after=10,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="RowRemapExhausted",
        component="gpu/PCI",
        meaning=f"{DEFAULTS.remapped_rows} rows or more were remapped after uncorrectable errors, "
        "or a bank of memory has no spare row left",
        source="DCGM: DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE; NVML's row remapper histogram",
        clears_when="the counts are below again: the GPU was replaced",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuEccUncorrected",
        component="gpu/PCI",
        meaning="the GPU counted uncorrectable memory errors since the driver was loaded",
        source="DCGM fails from the first on; Xids report what it affected",
        clears_when="the count is 0: the GPU was reset or the driver reloaded",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuEccCorrectedRate",
        window_ns=5 * MINUTE_NS,
        component="gpu/PCI",
        meaning=f"the GPU corrects more than {DEFAULTS.ecc_corrected_per_s:g} memory errors a "
        "second over five minutes",
        source="ours; nobody publishes a limit for the rate",
        clears_when="the rate over five minutes is below the limit for a minute",
        clear_after=60,
    ),
    Condition(
        name="GpuEccCorrectedStorm",
        window_ns=MINUTE_NS,
        component="gpu/PCI",
        meaning=f"the GPU corrects more than {DEFAULTS.ecc_storm_per_s:g} memory errors a second "
        "over one minute",
        source="DCGM issue 313: 17,657 a second slowed a GPU that every tool called healthy",
        clears_when="the rate over one minute is below the limit for five minutes",
        clear_after=300,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuSramUncorrected",
        component="gpu/PCI",
        meaning="the GPU's caches (SRAM) had errors since the driver was loaded that were not "
        "corrected: of parity, or of more bits than their code corrects (SEC-DED)",
        source="reported by the driver (nvmlDeviceGetSramEccErrorStatus); Azure's health checks "
        "fail from the first on",
        clears_when="both counts are 0: the GPU was reset or the driver reloaded",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuSramThreshold",
        component="gpu/PCI",
        meaning="the driver says that errors of the GPU's caches have passed their threshold",
        source="reported by the driver (nvmlDeviceGetSramEccErrorStatus)",
        clears_when="the driver does not say so any more: the GPU was replaced",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuPagesRetired",
        component="gpu/PCI",
        meaning=f"{DEFAULTS.retired_pages} pages or more are retired; or more than "
        f"{DEFAULTS.retired_double_bit} after double-bit errors, and more than one of them in the "
        "last week",
        source="DCGM (GPUs before Ampere)",
        clears_when="the counts are below again: the GPU was replaced",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuPageRetirementPending",
        component="gpu/PCI",
        meaning="pages wait for a reset to be retired",
        source="reported by the driver",
        clears_when="no page waits",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="GpuEccDisabled",
        component="gpu/PCI",
        meaning="the GPU could check its memory for errors (ECC), and this is switched off",
        source="reported by the driver; with it off, a flipped bit reaches the model unseen",
        clears_when="the check is on",
    ),
)

_REPAIR = SuggestedAction.REPAIR_HARDWARE
_RESET = SuggestedAction.RESET_DEVICE
_REMAP_FLAGS = "row remapping flags"
_FAILED = GpuFault(
    "RowRemapFailed", "row remapping failed", _REMAP_FLAGS, Severity.FATAL, action=_REPAIR
)
_PENDING = GpuFault(
    "RowRemapPending", "row remapping waits for a reset", _REMAP_FLAGS, action=_RESET
)
_EXHAUSTED = GpuFault("RowRemapExhausted", "spare rows run out", "remapped rows", action=_REPAIR)
_UNCORRECTED = GpuFault(
    "GpuEccUncorrected", "uncorrectable memory errors", "uncorrected since driver load"
)
_RATE = GpuFault(
    "GpuEccCorrectedRate", "many corrected memory errors", "corrected errors over five minutes"
)
_STORM = GpuFault(
    "GpuEccCorrectedStorm",
    "a storm of corrected memory errors slows the memory",
    "corrected errors over one minute",
    action=_REPAIR,
)
_SRAM_UNCORRECTED = GpuFault(
    "GpuSramUncorrected",
    "errors of its caches (SRAM) were not corrected",
    "uncorrected SRAM errors since driver load",
)
_SRAM = GpuFault(
    "GpuSramThreshold", "cache errors passed their threshold", "SRAM threshold flag", action=_REPAIR
)
_RETIRED = GpuFault("GpuPagesRetired", "too many retired pages", "retired pages", action=_REPAIR)
_RETIRING = GpuFault(
    "GpuPageRetirementPending", "pages wait for a reset", "page retirement flag", action=_RESET
)
_DISABLED = GpuFault("GpuEccDisabled", "memory errors are not checked", "ECC mode", Severity.INFO)


def judge_remapping(
    component: str, pending: bool | None, failed: bool | None
) -> tuple[Judgement, ...]:
    """Judge the two flags of the row remapper."""
    asked = "nvmlDeviceGetRemappedRows"
    return (
        judge(component, _FAILED, failed, f"{asked}: failure {shown(failed)}"),
        judge(component, _PENDING, pending, f"{asked}: pending {shown(pending)}"),
    )


class EccRates:
    """Rates of corrected errors over two windows, remembered over restarts and reboots."""

    def __init__(self, limits: GpuLimits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._windows: dict[str, tuple[RateWindow, RateWindow]] = {}

    def judge(self, gpu: GpuReading, now: Moment) -> list[Judgement]:
        """Judge one look at one GPU."""
        if gpu.ecc_corrected is None:
            said = "the driver counts no corrected errors"
            return [judge_gpu(gpu, fault, None, said) for fault in (_RATE, _STORM)]
        if gpu.pci not in self._windows:
            self._windows[gpu.pci] = (
                RateWindow(_RATE_S * _SECOND_NS),
                RateWindow(_STORM_S * _SECOND_NS),
            )
        growth = self._counters.add_reading(
            f"{gpu.component}/ecc_corrected", gpu.ecc_corrected, now
        )
        # What came while no agent looked counts at its mean rate, for the length of the window.
        rates = [
            window.add_growth(round(growth.per_second * min(growth.seconds, seconds)), now.boot_ns)
            / seconds
            for window, seconds in zip(self._windows[gpu.pci], (_RATE_S, _STORM_S), strict=True)
        ]
        limits = (self._limits.ecc_corrected_per_s, self._limits.ecc_storm_per_s)
        return [
            judge_gpu(gpu, fault, rate > limit, f"{rate:.1f} corrected errors a second")
            for fault, rate, limit in zip((_RATE, _STORM), rates, limits, strict=True)
        ]


def judge_uncorrected(gpu: GpuReading) -> Judgement:
    """Judge the count of uncorrected errors."""
    count = gpu.ecc_uncorrected
    return judge_gpu(
        gpu, _UNCORRECTED, above(count, 0), f"{shown(count)} since the driver was loaded"
    )


def _judge_sram(gpu: GpuReading) -> Judgement:
    known = [count for count in (gpu.sram_parity, gpu.sram_secded) if count is not None]
    evidence = (
        f"{shown(gpu.sram_parity)} of parity and {shown(gpu.sram_secded)} of more bits than one"
        f" (SEC-DED) since the driver was loaded; {shown(gpu.sram_parity_aggregate)} and"
        f" {shown(gpu.sram_secded_aggregate)} ever"
    )
    return judge_gpu(gpu, _SRAM_UNCORRECTED, any(known) if known else None, evidence)


class WornMemory:
    """Detector of GPU memory that is lost for good."""

    def __init__(self, limits: GpuLimits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._week: dict[str, RateWindow] = {}

    def judge(self, gpu: GpuReading, now: Moment) -> list[Judgement]:
        """Judge one complete look at one GPU."""
        sram, pending = gpu.sram_threshold_exceeded, gpu.retired_pending
        off = None if gpu.ecc_enabled is None else not gpu.ecc_enabled
        return [
            self._judge_rows(gpu),
            self._judge_pages(gpu, now),
            _judge_sram(gpu),
            judge_gpu(gpu, _SRAM, sram, f"threshold exceeded: {shown(sram)}"),
            judge_gpu(gpu, _RETIRING, pending, f"pending: {shown(pending)}"),
            judge_gpu(gpu, _DISABLED, off, f"ECC enabled: {shown(gpu.ecc_enabled)}"),
        ]

    def _judge_rows(self, gpu: GpuReading) -> Judgement:
        rows, banks = gpu.remapped_uncorrected, gpu.remap_banks_exhausted
        holds = at_least(rows, self._limits.remapped_rows)
        if banks is not None:
            holds = bool(holds) or banks > 0
        evidence = f"{shown(rows)} rows remapped, {shown(banks)} banks without a spare row"
        return judge_gpu(gpu, _EXHAUSTED, holds, evidence)

    def _judge_pages(self, gpu: GpuReading, now: Moment) -> Judgement:
        single, double = gpu.retired_single_bit, gpu.retired_double_bit
        if single is None or double is None:
            return judge_gpu(gpu, _RETIRED, None, "this GPU retires no pages")
        growth = self._counters.add_reading(f"{gpu.component}/retired_double_bit", double, now)
        week = self._week.setdefault(gpu.pci, RateWindow(_WEEK_NS)).add_growth(
            growth.count, now.boot_ns
        )
        failing = double > self._limits.retired_double_bit and week > 1
        return judge_gpu(
            gpu,
            _RETIRED,
            failing or single + double >= self._limits.retired_pages,
            f"{single} after single-bit errors, {double} after double-bit errors, {week} of these "
            "in the last week",
        )
