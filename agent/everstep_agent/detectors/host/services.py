"""Service detector: units of the service manager, and kernel modules, that a GPU node needs."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from everstep_agent.detectors.host.service_limits import FABRIC_MANAGER, PEER_MEMORY, ServiceLimits
from everstep_agent.detectors.readings.counters import Counters, RateWindow
from everstep_common.judging.condition import BOOT_GRACE_NS, MINUTE_NS, Condition
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Healthy, Judgement, Unknown
from everstep_common.judging.moment import Moment

_SECOND_NS = 10**9
# Services that exclude each other: starting one stops the others, which may stay enabled.
_TIME_UNITS = frozenset(
    {"chronyd.service", "chrony.service", "systemd-timesyncd.service", "ntpd.service"}
)
_D = ServiceLimits()
CONDITIONS = (
    Condition(
        name="ServiceDown",
        component="service/NAME",
        meaning="a service failed, waits for its next restart, or is inactive though it is enabled "
        "or signals.services.units names it, in two polls",
        source="the service manager's own state. Fatal only for NVIDIA's fabric manager on a node "
        "with NVSwitches on its PCI bus: without it no job of several GPUs starts there; a node "
        "ran 20 days like that (NVSentinel issue 883)",
        clears_when="it is active, or not meant to run any more, in two polls",
        raise_after=2,
        clear_after=2,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="ServiceFlapping",
        window_ns=10 * MINUTE_NS,
        component="service/NAME",
        meaning=f"the service manager restarted a service {_D.restarts_max} times or more within "
        f"{_D.restart_window_s:g} s (its counter NRestarts)",
        source="NVSentinel ADR-050: 3 restarts in 600 s",
        clears_when="there were fewer in the window",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="KernelModuleMissing",
        component="module/NAME",
        meaning="a kernel module is not loaded that signals.services.modules names, or "
        "nvidia_peermem after it was loaded, in two polls",
        source="the operator's list, or its own past: without peermem, RDMA to GPU memory fails on "
        "kernels without DMA-BUF",
        clears_when="the module is loaded",
        raise_after=2,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
)

_NAMES = frozenset(condition.name for condition in CONDITIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitReading:
    """One unit, in the service manager's words. What was not asked is empty or None.

    ``file_state`` (enabled, disabled, static, …), ``oneshot`` and ``skipped`` (a condition in the
    unit's file did not hold) matter only while it is not active.
    """

    name: str
    load: str = "loaded"
    active: str = "active"
    sub: str = "running"
    file_state: str = ""
    oneshot: bool = False
    skipped: bool = False
    restarts: int | None = None

    @property
    def state_text(self) -> str:
        """Return the state as systemctl prints it."""
        return f"{self.load}, {self.active} ({self.sub}){self.file_state and ', '}{self.file_state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesReading:
    """All watched units. ``absent`` says why there are none: no service manager on this machine."""

    absent: str = ""
    units: tuple[UnitReading, ...] = ()
    modules: frozenset[str] = frozenset()
    nvswitches: int = 0


class ServiceDetector:
    """Detector of services; remembers which ran, and when each was restarted."""

    def __init__(self, limits: ServiceLimits, counters: Counters) -> None:
        self._limits = limits
        self._counters = counters
        self._ran: set[str] = set()
        self._restarts: dict[str, RateWindow] = {}
        self._were_loaded = set(limits.modules)

    def judge(self, services: ServicesReading, now: Moment) -> list[Judgement]:
        """Judge one reading of all services."""
        found = list(self._judge_modules(services.modules))
        keeps_time = any(u.name in _TIME_UNITS and u.active == "active" for u in services.units)
        for unit in services.units:
            if unit.active == "active":
                self._ran.add(unit.name)
            if keeps_time and unit.name in _TIME_UNITS and unit.active == "inactive":
                unit = replace(unit, file_state="replaced by another")
            found.append(self._judge_state(unit, services.nvswitches))
            if unit.restarts is not None:
                found.append(self._judge_restarts(unit, unit.restarts, now))
        return found

    def _judge_state(self, unit: UnitReading, nvswitches: int) -> Judgement:
        component = f"service/{_short(unit.name)}"
        required = unit.name in self._limits.units
        if unit.active in ("activating", "deactivating") and not unit.sub.startswith("auto-res"):
            return Unknown(FindingKey(component, "ServiceDown"), unit.state_text)
        rule = _broken_rule(unit, required=required, ran=unit.name in self._ran)
        if not rule:
            return Healthy(FindingKey(component, "ServiceDown"), unit.state_text)
        fatal = unit.name == FABRIC_MANAGER and nvswitches > 0
        fault = Fault(
            message=f"service {unit.name} does not run",
            rule=rule,
            severity=Severity.FATAL if fatal else Severity.DEGRADED,
        )
        return judged(component, "ServiceDown", unit.state_text, fault)

    def _judge_restarts(self, unit: UnitReading, restarts: int, now: Moment) -> Judgement:
        name = _short(unit.name)
        window_s = self._limits.restart_window_s
        grown = self._counters.add_reading(f"service/{name}/restarts", restarts, now)
        # After a longer gap (no agent ran) nobody can say when the restarts were.
        is_recent = 0 < grown.seconds <= window_s
        window = self._restarts.setdefault(name, RateWindow(int(window_s * _SECOND_NS)))
        count = window.add_growth(grown.count if is_recent else 0, now.boot_ns)
        fault = Fault(
            message=f"service {unit.name} is restarted again and again",
            rule=f"{self._limits.restarts_max} or more restarts in {window_s:g} s",
        )
        evidence = f"{count} restarts in {window_s:g} s, {restarts} in all"
        flaps = count >= self._limits.restarts_max
        return judged(f"service/{name}", "ServiceFlapping", evidence, fault if flaps else None)

    def _judge_modules(self, loaded: Iterable[str]) -> Iterator[Judgement]:
        names = frozenset(loaded)
        self._were_loaded |= names & {PEER_MEMORY}
        for name in sorted(self._were_loaded):
            fault = Fault(
                message=f"kernel module {name} is not loaded",
                rule="signals.services.modules, or loaded before",
                action=SuggestedAction.WATCH,
            )
            is_there = name in names
            evidence = "loaded" if is_there else "not in /sys/module"
            yield judged(
                f"module/{name}", "KernelModuleMissing", evidence, None if is_there else fault
            )


def judge_unwatched(
    open_keys: Iterable[FindingKey], units: Collection[str], modules: Collection[str]
) -> list[Judgement]:
    """Clear what is open of units and modules that nobody asks for any more."""
    watched = {f"service/{_short(unit)}" for unit in units}
    watched |= {f"module/{module}" for module in modules}
    return [
        Healthy(key, "it is not watched any more")
        for key in open_keys
        if key.condition in _NAMES and key.component not in watched
    ]


def _short(unit: str) -> str:
    return unit.removesuffix(".service")


def _broken_rule(unit: UnitReading, *, required: bool, ran: bool) -> str:
    """Return why a unit that is not on its way counts as broken; empty when it does not."""
    if unit.active == "failed":
        return "the unit is in state failed"
    if unit.active == "activating":
        return "the unit waits for its next restart"
    if unit.active != "inactive":
        return ""
    if required:
        return "signals.services.units names it"
    if unit.load != "loaded" or unit.oneshot or unit.skipped:
        return ""
    if unit.file_state.startswith("enabled"):
        return "the unit is inactive though enabled"
    # Without an [Install] section nothing says whether it should run, except that it did.
    return "the unit ran before" if ran and unit.file_state == "static" else ""
