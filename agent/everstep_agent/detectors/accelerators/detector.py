"""Accelerator detector: devices that vanish, that their tool calls unhealthy, or that miscount."""

from collections.abc import Iterator, Mapping

from everstep_agent.detectors.accelerators.reading import (
    AcceleratorLimits,
    AcceleratorReading,
    AcceleratorsReading,
)
from everstep_agent.detectors.readings.counters import Counters, RateWindow
from everstep_common.judging.fault import Fault, judged
from everstep_common.judging.findings import FindingKey, Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement, Unknown
from everstep_common.judging.moment import Moment

_WINDOW_S = 300
_GOOD_WORDS = frozenset({"ok", "healthy", "good", "normal"})
_NO_WORDS = frozenset({"", "unknown", "na", "n/a", "-"})
# Alarm and Critical are Huawei's words for major and critical alarms; Critical is Intel's too.
_FATAL_WORDS = frozenset({"alarm", "critical", "error", "failed"})


class AcceleratorDetector:
    """Detector over the answers of one tool; remembers which devices it has listed."""

    def __init__(self, source: str, limits: AcceleratorLimits, counters: Counters) -> None:
        self._probe = f"probe/{source}"
        self._limits = limits
        self._counters = counters
        self._known: dict[str, AcceleratorReading] = {}
        self._rates: dict[str, RateWindow] = {}

    def judge(self, reading: AcceleratorsReading, now: Moment) -> list[Judgement]:
        """Judge one answer."""
        listed = {device.component: device for device in reading.devices}
        trouble = _trouble(reading, self._known)
        judgements: list[Judgement] = [
            judged(
                self._probe,
                "MonitorDegraded",
                trouble or f"{reading.tool} lists {len(listed)} devices",
                Fault(message=trouble, rule="a whole class is gone") if trouble else None,
            )
        ]
        known = self._known | listed
        if trouble:
            lost = (FindingKey(component, "AcceleratorLost") for component in known)
            return judgements + [Unknown(key, trouble) for key in lost]
        for component, device in known.items():
            if component in listed:
                judgements += self._judge_device(device, now)
            else:
                judgements.append(_judge_lost(device, "it is not listed any more"))
        self._known = known
        return judgements

    def _judge_device(self, device: AcceleratorReading, now: Moment) -> Iterator[Judgement]:
        yield _judge_lost(device, device.error)
        if device.error:
            return
        yield from _judge_health(device)
        yield from _judge_uncorrected(device)
        yield from self._judge_corrected(device, now)
        yield from _judge_temperature(device)
        yield from _judge_width(device)
        yield from self._judge_memory(device)

    def _judge_corrected(self, device: AcceleratorReading, now: Moment) -> Iterator[Judgement]:
        if device.ecc_corrected is None:
            return
        growth = self._counters.take(f"{device.component}/ecc_corrected", device.ecc_corrected, now)
        # Errors counted while no agent ran are spread over that time, not put into this window.
        share = min(1.0, _WINDOW_S / growth.seconds) if growth.seconds else 1.0
        window = self._rates.setdefault(device.component, RateWindow(_WINDOW_S * 10**9))
        rate = window.take(round(growth.count * share), now.boot_ns) / _WINDOW_S
        fault = Fault(
            message=f"{_title(device)} corrects memory errors all the time",
            rule="rate of corrected memory errors",
            action=SuggestedAction.REPAIR_HARDWARE,
        )
        yield judged(
            device.component,
            "AcceleratorEccCorrectedRate",
            f"{rate:g} corrected errors per second over {_WINDOW_S // 60} minutes",
            fault if rate >= self._limits.ecc_corrected_per_s else None,
        )

    def _judge_memory(self, device: AcceleratorReading) -> Iterator[Judgement]:
        if device.processes is None or device.memory_used_ratio is None:
            return
        kept = device.memory_used_ratio > self._limits.memory_kept_ratio and not device.processes
        fault = Fault(
            message=f"{_title(device)} has memory in use that belongs to no process",
            rule="memory in use without a process",
            action=SuggestedAction.RESET_DEVICE,
        )
        yield judged(
            device.component,
            "AcceleratorMemoryKept",
            f"{device.memory_used_ratio:.0%} of the memory in use, {device.processes} processes",
            fault if kept else None,
        )


def _title(device: AcceleratorReading) -> str:
    return f"accelerator {device.id} ({device.vendor} {device.name})"


def _trouble(reading: AcceleratorsReading, known: Mapping[str, AcceleratorReading]) -> str:
    """Return why rather the tool than every single device has failed; empty when it has not."""
    devices = reading.devices
    if known and not devices:
        why = f": {reading.absent}" if reading.absent else ""
        return f"{reading.tool} lists none of {len(known)} devices any more{why}"
    if len(devices) > 1 and all(device.error for device in devices):
        return f"none of {len(devices)} devices answers {reading.tool}: {devices[0].error}"
    return ""


def _judge_lost(device: AcceleratorReading, why: str) -> Judgement:
    fault = Fault(
        message=f"{_title(device)} is lost: {why}",
        rule="the device was there before",
        severity=Severity.FATAL,
        action=SuggestedAction.REBOOT_NODE,
    )
    evidence = why or "it is listed and answers"
    return judged(device.component, "AcceleratorLost", evidence, fault if why else None)


def _judge_health(device: AcceleratorReading) -> Iterator[Judgement]:
    word = device.health.lower()
    if word in _NO_WORDS:
        return
    fatal = word in _FATAL_WORDS
    fault = Fault(
        message=f"{_title(device)} is not healthy, says the vendor's tool",
        rule=f"health word of the vendor's tool: {'fatal' if fatal else 'degraded'}",
        severity=Severity.FATAL if fatal else Severity.DEGRADED,
        action=SuggestedAction.REPAIR_HARDWARE if fatal else SuggestedAction.WATCH,
    )
    detail = f", {device.health_detail}" if device.health_detail else ""
    yield judged(
        device.component,
        "AcceleratorUnhealthy",
        f"health: {device.health}{detail}",
        None if word in _GOOD_WORDS else fault,
    )


def _judge_uncorrected(device: AcceleratorReading) -> Iterator[Judgement]:
    if device.ecc_uncorrected is None:
        return
    fault = Fault(
        message=f"{_title(device)} had memory errors that could not be corrected",
        rule="uncorrected memory errors",
        action=SuggestedAction.RESET_DEVICE,
    )
    yield judged(
        device.component,
        "AcceleratorEccUncorrected",
        f"{device.ecc_uncorrected} uncorrected errors",
        fault if device.ecc_uncorrected else None,
    )


def _judge_temperature(device: AcceleratorReading) -> Iterator[Judgement]:
    now, limit = device.temperature_c, device.temperature_limit_c
    if now is None or limit is None:
        return
    fault = Fault(message=f"{_title(device)} is too hot", rule="the device's own threshold")
    yield judged(
        device.component,
        "AcceleratorTooHot",
        f"{now:g} C, its threshold is {limit:g} C",
        fault if now >= limit else None,
    )


def _judge_width(device: AcceleratorReading) -> Iterator[Judgement]:
    width, most = device.pcie_width, device.pcie_width_max
    if width is None or most is None:
        return
    fault = Fault(
        message=f"{_title(device)} lacks PCIe lanes",
        rule="width of the PCIe link",
        action=SuggestedAction.REPAIR_HARDWARE,
    )
    yield judged(
        device.component,
        "AcceleratorPcieNarrow",
        f"{width} of {most} lanes",
        fault if width < most else None,
    )
