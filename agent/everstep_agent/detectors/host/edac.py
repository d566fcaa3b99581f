"""Memory error detector: corrected and uncorrected errors of each memory module."""

from collections.abc import Sequence
from dataclasses import dataclass

from everstep_agent.detectors.host.limits import DEFAULT_LIMITS as _D
from everstep_agent.detectors.host.limits import HostLimits
from everstep_agent.detectors.readings.counters import Counters, RateWindow
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment

_DAY_NS = 24 * HOUR_NS

CONDITIONS = (
    Condition(
        name="DimmUncorrectedErrors",
        component="memory/MODULE",
        meaning="a memory module had an error since boot that could not be corrected (EDAC)",
        source="mcelog's default: one; what was in the memory is lost",
        clears_when="the node was rebooted, which tests its memory, and none was counted since",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="DimmCorrectedErrors",
        window_ns=24 * HOUR_NS,
        component="memory/MODULE",
        meaning=f"a memory module had {_D.dimm_corrected_per_day_max} or more corrected errors in "
        "24 h",
        source="mcelog's default for a module: 10 in 24 h",
        clears_when="it had fewer in the last 24 h",
    ),
)


@dataclass(frozen=True, slots=True)
class DimmReading:
    """Errors of one memory module, or of what a controller cannot attribute, since boot."""

    name: str
    label: str
    corrected: int
    uncorrected: int


class EdacDetector:
    """Detector of memory modules, each judged by its own past."""

    def __init__(self, limits: HostLimits, counters: Counters) -> None:
        self._per_day = limits.dimm_corrected_per_day_max
        self._counters = counters
        self._days: dict[str, RateWindow] = {}

    def judge(self, modules: Sequence[DimmReading], now: Moment) -> list[Judgement]:
        """Judge one reading of all modules."""
        found: list[Judgement] = []
        for module in modules:
            found += [_judge_uncorrected(module), self._judge_corrected(module, now)]
        return found

    def _judge_corrected(self, module: DimmReading, now: Moment) -> Judgement:
        grown = self._counters.add_reading(f"memory/{module.name}/corrected", module.corrected, now)
        day = self._days.setdefault(module.name, RateWindow(_DAY_NS))
        count = day.add_growth(grown.count, now.boot_ns)
        fault = Fault(
            message=f"memory module {module.label} corrects errors",
            rule=f"{self._per_day} or more corrected errors in 24 h",
            action=SuggestedAction.REPAIR_HARDWARE,
        )
        evidence = f"{count} corrected errors in 24 h, {module.corrected} since boot"
        component = f"memory/{module.name}"
        many = count >= self._per_day
        return judged(component, "DimmCorrectedErrors", evidence, fault if many else None)


def _judge_uncorrected(module: DimmReading) -> Judgement:
    fault = Fault(
        message=f"memory module {module.label} lost data",
        rule="an uncorrected error since boot",
        severity=Severity.FATAL,
        action=SuggestedAction.REPAIR_HARDWARE,
    )
    evidence = f"{module.uncorrected} uncorrected errors since boot"
    component = f"memory/{module.name}"
    lost = module.uncorrected > 0
    return judged(component, "DimmUncorrectedErrors", evidence, fault if lost else None)
