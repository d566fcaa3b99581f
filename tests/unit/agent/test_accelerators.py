"""Accelerators: lost or only unread, unhealthy by their tool's word, miscounting, too hot."""

from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.detectors.accelerators.detector import AcceleratorDetector
from everstep_agent.detectors.accelerators.reading import (
    CONDITIONS,
    AcceleratorLimits,
    AcceleratorReading,
    AcceleratorsReading,
)
from everstep_agent.detectors.readings.counters import Counters
from everstep_agent.inventory.accelerators import accelerators_of
from everstep_common.clock import Stamp
from everstep_common.judging.findings import Mode, Severity
from everstep_common.judging.judgement import Faulty, Healthy, Judgement, Unknown
from fakes.settings_files import mistakes_in

_SECOND_NS = 10**9
_START_NS = 3600 * _SECOND_NS
_NPU = AcceleratorReading(
    vendor="ascend", id="0000:c1:00.0", name="Ascend 910B2", pci="0000:c1:00.0", health="OK"
)
_OTHER = replace(_NPU, id="0000:c2:00.0", pci="0000:c2:00.0")
_COMPONENT = "accelerator/ascend-0000:c1:00.0"


def _at(second: float) -> Stamp:
    now_ns = _START_NS + int(second * _SECOND_NS)
    return Stamp("boot-1", now_ns, now_ns)


def _detector(limits: AcceleratorLimits | None = None) -> AcceleratorDetector:
    return AcceleratorDetector("accelerators-npu-smi", limits or AcceleratorLimits(), Counters())


def _answer(*devices: AcceleratorReading, absent: str = "") -> AcceleratorsReading:
    return AcceleratorsReading(tool="npu-smi", devices=devices, absent=absent)


def _on(judgements: list[Judgement], condition: str, component: str = _COMPONENT) -> Judgement:
    (found,) = (
        judgement
        for judgement in judgements
        if (judgement.key.condition, judgement.key.component) == (condition, component)
    )
    return found


def _judge(device: AcceleratorReading, condition: str) -> Judgement:
    return _on(_detector().judge(_answer(device), _at(0)), condition)


def test_a_device_that_vanishes_is_lost_and_clears_when_it_is_back() -> None:
    detector = _detector()
    detector.judge(_answer(_NPU, _OTHER), _at(0))
    lost = _on(detector.judge(_answer(_OTHER), _at(30)), "AcceleratorLost")
    assert isinstance(lost, Faulty)
    assert lost.finding.severity is Severity.FATAL
    back = _on(detector.judge(_answer(_NPU, _OTHER), _at(60)), "AcceleratorLost")
    assert isinstance(back, Healthy)


def test_a_device_that_does_not_answer_is_lost_and_nothing_else_is_said_of_it() -> None:
    silent = replace(_NPU, error="no answer", health="Critical", ecc_uncorrected=3)
    judgements = _detector().judge(_answer(silent, _OTHER), _at(0))
    assert isinstance(_on(judgements, "AcceleratorLost"), Faulty)
    assert [j.key.condition for j in judgements if j.key.component == _COMPONENT] == [
        "AcceleratorLost"
    ]


@pytest.mark.parametrize(
    "later",
    [
        _answer(absent="not installed"),
        _answer(replace(_NPU, error="EIO"), replace(_OTHER, error="EIO")),
    ],
)
def test_when_all_are_gone_at_once_rather_the_monitor_has_failed(
    later: AcceleratorsReading,
) -> None:
    detector = _detector()
    detector.judge(_answer(_NPU, _OTHER), _at(0))
    judgements = detector.judge(later, _at(30))
    probe = "probe/accelerators-npu-smi"
    assert isinstance(_on(judgements, "MonitorDegraded", probe), Faulty)
    assert isinstance(_on(judgements, "AcceleratorLost"), Unknown)
    again = detector.judge(_answer(_NPU, _OTHER), _at(60))
    assert isinstance(_on(again, "MonitorDegraded", probe), Healthy)
    assert isinstance(_on(again, "AcceleratorLost"), Healthy)


@pytest.mark.parametrize(
    ("word", "severity"),
    [
        ("Warning", Severity.DEGRADED),
        ("Alarm", Severity.FATAL),
        ("Critical", Severity.FATAL),
        ("weird", Severity.DEGRADED),
    ],
)
def test_the_tools_word_decides_and_is_the_evidence(word: str, severity: Severity) -> None:
    device = replace(_NPU, health=word, health_detail="80E01801, sensor type=Temperature")
    judgement = _judge(device, "AcceleratorUnhealthy")
    assert isinstance(judgement, Faulty)
    assert judgement.finding.severity is severity
    assert judgement.finding.evidence == f"health: {word}, 80E01801, sensor type=Temperature"


def test_a_tool_without_a_health_word_says_nothing_of_health() -> None:
    for word in ("", "Unknown", "N/A"):
        judgements = _detector().judge(_answer(replace(_NPU, health=word)), _at(0))
        assert all(judgement.key.condition != "AcceleratorUnhealthy" for judgement in judgements)
    assert isinstance(_judge(_NPU, "AcceleratorUnhealthy"), Healthy)


def test_one_uncorrected_error_is_enough_and_a_reset_device_is_healthy() -> None:
    assert isinstance(_judge(replace(_NPU, ecc_uncorrected=1), "AcceleratorEccUncorrected"), Faulty)
    assert isinstance(
        _judge(replace(_NPU, ecc_uncorrected=0), "AcceleratorEccUncorrected"), Healthy
    )


def _rates(detector: AcceleratorDetector, per_look: int, looks: int) -> list[bool]:
    found = []
    for look in range(looks):
        device = replace(_NPU, ecc_corrected=1000 + per_look * look)
        judgements = detector.judge(_answer(device), _at(30 * look))
        found.append(isinstance(_on(judgements, "AcceleratorEccCorrectedRate"), Faulty))
    return found


def test_corrected_errors_count_by_their_rate_not_by_their_number() -> None:
    assert not any(_rates(_detector(), per_look=290, looks=40))
    assert _rates(_detector(), per_look=310, looks=40)[-1]


def test_what_came_while_nobody_looked_is_no_rate_of_now() -> None:
    counters = Counters()
    day_s = 86_400
    before = AcceleratorDetector("a", AcceleratorLimits(), counters)
    before.judge(_answer(replace(_NPU, ecc_corrected=0)), _at(0))
    after = AcceleratorDetector("a", AcceleratorLimits(), counters)
    reading = _answer(replace(_NPU, ecc_corrected=100_000))
    judgement = _on(after.judge(reading, _at(day_s)), "AcceleratorEccCorrectedRate")
    assert isinstance(judgement, Healthy)


def test_a_device_is_too_hot_by_its_own_threshold_only() -> None:
    hot = replace(_NPU, temperature_c=105.0, temperature_limit_c=105.0)
    assert isinstance(_judge(hot, "AcceleratorTooHot"), Faulty)
    assert isinstance(_judge(replace(hot, temperature_c=104.9), "AcceleratorTooHot"), Healthy)
    unlimited = replace(hot, temperature_limit_c=None)
    judgements = _detector().judge(_answer(unlimited), _at(0))
    assert all(judgement.key.condition != "AcceleratorTooHot" for judgement in judgements)


def test_missing_lanes_are_told() -> None:
    narrow = replace(_NPU, pcie_width=8, pcie_width_max=16)
    assert isinstance(_judge(narrow, "AcceleratorPcieNarrow"), Faulty)
    assert isinstance(_judge(replace(narrow, pcie_width=16), "AcceleratorPcieNarrow"), Healthy)


def test_memory_without_a_process_is_kept_but_what_the_device_needs_itself_is_not() -> None:
    kept = replace(_NPU, memory_used_ratio=0.5, processes=0)
    assert isinstance(_judge(kept, "AcceleratorMemoryKept"), Faulty)
    for healthy in (replace(kept, processes=1), replace(kept, memory_used_ratio=0.1)):
        assert isinstance(_judge(healthy, "AcceleratorMemoryKept"), Healthy)
    judgements = _detector().judge(_answer(replace(kept, processes=None)), _at(0))
    assert all(judgement.key.condition != "AcceleratorMemoryKept" for judgement in judgements)


def test_nothing_that_was_never_run_on_hardware_acts_on_a_node() -> None:
    assert {condition.mode for condition in CONDITIONS} == {Mode.OBSERVE}


def test_wrong_limits_are_told_together(tmp_path: Path) -> None:
    wrong = "[signals.accelerators]\necc_corrected_per_s = 0\nmemory_kept_ratio = 2\n"
    assert len(mistakes_in(tmp_path, wrong)) == 2


def test_the_controller_hears_of_them_by_serial_or_by_place() -> None:
    reading = _answer(replace(_NPU, serial="0102", memory_bytes=1 << 36), _OTHER)
    wire = accelerators_of([reading])
    assert [(one.uuid, one.vendor, one.pci_address) for one in wire] == [
        ("0102", "ascend", "0000:c1:00.0"),
        ("ascend-0000:c2:00.0", "ascend", "0000:c2:00.0"),
    ]
    assert wire[0].memory_bytes == 1 << 36
