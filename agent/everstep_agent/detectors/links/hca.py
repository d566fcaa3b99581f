"""HCA detector: cards whose PCIe link is narrower or slower than it could be, or that run hot."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from everstep_agent.detectors.links.infiniband_limits import InfinibandLimits
from everstep_common.judging.condition import BOOT_GRACE_NS, Condition
from everstep_common.judging.findings import Finding, FindingKey, Mode, Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown

_LIMITS = InfinibandLimits()

CONDITIONS = (
    Condition(
        name="HcaPcieNarrow",
        component="link/DEVICE",
        meaning="the PCIe link of an HCA has fewer lanes or a lower rate than card and slot both "
        "can have",
        source="max_link_width and max_link_speed of sysfs; a card that is not seated well feeds "
        "its port at half speed, and no error is counted",
        clears_when="the link has the lanes and the rate that it can have",
        raise_after=2,
        clear_after=2,
        boot_grace_ns=BOOT_GRACE_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="HcaTooHot",
        component="link/DEVICE",
        meaning="a sensor of an HCA is at or above its own critical temperature, or that of a "
        f"transceiver at {_LIMITS.transceiver_celsius_max:g} °C",
        source="tempN_crit of the driver; NVIDIA's bring-up guide: transceivers alarm at 80 °C",
        clears_when="every sensor is below",
        raise_after=2,
        clear_after=2,
        mode=Mode.ADVISE,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensor:
    """A temperature; ``critical_c`` is None where the driver names none."""

    label: str
    celsius: float
    critical_c: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaReading:
    """One HCA. Lanes and rates (in GT/s) are 0 where they are not known."""

    device: str
    lanes: int = 0
    lanes_max: int = 0
    rate: float = 0.0
    rate_max: float = 0.0
    sensors: tuple[Sensor, ...] = ()


def judge_hcas(hcas: Sequence[HcaReading], limits: InfinibandLimits) -> Iterable[Judgement]:
    """Judge one reading of all HCAs."""
    for hca in hcas:
        yield _judge_pcie(hca)
        if hca.sensors:
            yield _judge_heat(hca, limits.transceiver_celsius_max)


def _judge_pcie(hca: HcaReading) -> Judgement:
    key = FindingKey(f"link/{hca.device}", "HcaPcieNarrow")
    if not (hca.lanes and hca.lanes_max and hca.rate and hca.rate_max):
        return Unknown(key, "no PCIe link is known")
    evidence = f"x{hca.lanes} at {hca.rate:g} GT/s, can be x{hca.lanes_max} at {hca.rate_max:g}"
    if hca.lanes >= hca.lanes_max and hca.rate >= hca.rate_max:
        return Healthy(key, evidence)
    message = f"the PCIe link of {hca.device} is narrower or slower than it can be"
    return _degraded(key, message, evidence, "below what card and slot can have")


def _judge_heat(hca: HcaReading, transceiver_max_c: float) -> Judgement:
    key = FindingKey(f"link/{hca.device}", "HcaTooHot")
    hot = [one for one in hca.sensors if one.celsius >= _limit(one, transceiver_max_c)]
    hottest = max(hca.sensors, key=lambda one: one.celsius)
    if not hot:
        return Healthy(key, f"{hottest.label} {hottest.celsius:g} °C")
    evidence = ", ".join(f"{one.label} {one.celsius:g} °C" for one in hot)
    return _degraded(key, f"{hca.device} is too hot", evidence, "at its critical temperature")


def _limit(sensor: Sensor, transceiver_max_c: float) -> float:
    """Return the limit of a sensor; the driver calls those of transceivers "Module0" and so on."""
    limits = [sensor.critical_c] if sensor.critical_c else []
    if sensor.label.startswith("Module"):
        limits.append(transceiver_max_c)
    return min(limits, default=float("inf"))


def _degraded(key: FindingKey, message: str, evidence: str, rule: str) -> Faulty:
    return Faulty(
        Finding(
            component=key.component,
            condition=key.condition,
            severity=Severity.DEGRADED,
            message=message,
            evidence=evidence,
            suggested_action=SuggestedAction.REPAIR_HARDWARE,
            rule=rule,
        )
    )
