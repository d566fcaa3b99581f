"""CPU detector: whether all CPUs run at full clock, and the heat lets them."""

from dataclasses import dataclass

from everstep_agent.detectors.host.limits import DEFAULT_LIMITS as _D
from everstep_agent.detectors.host.limits import HostLimits
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.condition import MINUTE_NS, Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement
from everstep_common.judging.moment import Moment

CONDITIONS = (
    Condition(
        name="CpuGovernor",
        component="host/cpu",
        meaning=f'a CPU has another frequency governor than "{_D.cpu_governor}"',
        source="Meta's gcm (check_processor) requires it of every CPU",
        clears_when="every CPU has the governor, or frequencies cannot be set here",
        raise_after=2,
    ),
    Condition(
        name="CpuThermalThrottle",
        window_ns=3 * MINUTE_NS,
        component="host/cpu",
        meaning="the CPUs' counters of thermal throttling grew in three polls, three minutes",
        source="ours: one event is a fan that speeds up; three minutes are heat that stays",
        clears_when="they did not grow in five polls",
        raise_after=3,
        clear_after=5,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuReading:
    """Governors with how many policies have them, and throttle events since boot (None: unread)."""

    governors: tuple[tuple[str, int], ...] = ()
    throttled: int | None = None


class CpuDetector:
    """Detector over all CPUs together: a job feels the slowest."""

    def __init__(self, limits: HostLimits, counters: Counters) -> None:
        self._governor = limits.cpu_governor
        self._counters = counters

    def judge(self, cpus: CpuReading, now: Moment) -> list[Judgement]:
        """Judge one reading."""
        found: list[Judgement] = []
        if self._governor:
            found.append(self._judge_governor(cpus.governors))
        if cpus.throttled is not None:
            found.append(self._judge_heat(cpus.throttled, now))
        return found

    def _judge_governor(self, governors: tuple[tuple[str, int], ...]) -> Judgement:
        others = any(name != self._governor for name, _ in governors)
        fault = Fault(
            message=f"not every CPU has the frequency governor {self._governor}",
            rule=f"another governor than {self._governor}",
            severity=Severity.INFO,
        )
        told = ", ".join(f"{name}: {count} policies" for name, count in governors)
        evidence = told or "no frequency can be set here"
        return judged("host/cpu", "CpuGovernor", evidence, fault if others else None)

    def _judge_heat(self, throttled: int, now: Moment) -> Judgement:
        grown = self._counters.add_reading("host/cpu_throttled", throttled, now)
        count = 0 if grown.reset else grown.count
        fault = Fault(
            message="CPUs are slowed down by heat",
            rule="the counters of thermal throttling grow",
            action=SuggestedAction.REPAIR_HARDWARE,
        )
        evidence = f"throttled {count} times in {grown.seconds:.0f} s"
        return judged("host/cpu", "CpuThermalThrottle", evidence, fault if count else None)
