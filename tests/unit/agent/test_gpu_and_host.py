"""GPUs, disks and memory: what the readings mean."""

import dataclasses

import pytest

from everstep_agent.detectors.gpus.presence import (
    GpuReading,
    GpusReading,
    judge_driver_hang,
    judge_gpus,
)
from everstep_agent.detectors.host.usage import HostReading, judge_memory
from everstep_common.judging.findings import Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Unknown

_GPU = GpuReading(
    index=0,
    uuid="GPU-1",
    name="H100",
    pci="0000:3b:00.0",
    recovery_action=0,
    remap_failed=False,
    remap_pending=False,
)
_HOST = HostReading(
    cpu_busy_ratio=0.5, load_1m=1.0, memory_total_bytes=100, memory_available_bytes=50
)


def _faulty(reading: GpusReading, expected: int = 0, on_bus: int = 1) -> dict[str, Faulty]:
    judgements = judge_gpus(reading, expected, on_bus)
    return {j.key.condition: j for j in judgements if isinstance(j, Faulty)}


def _with(**changes: object) -> GpusReading:
    return GpusReading(driver="570", gpus=(dataclasses.replace(_GPU, **changes),))  # type: ignore[arg-type]


def test_a_healthy_gpu_has_no_fault() -> None:
    assert _faulty(_with()) == {}


def test_a_node_without_gpus_and_library_has_no_fault() -> None:
    assert _faulty(GpusReading(absent="NVIDIA driver library not found"), on_bus=0) == {}


def test_gpus_on_the_bus_that_no_driver_shows_are_fatal() -> None:
    found = _faulty(GpusReading(absent="NVIDIA driver library not found"), on_bus=8)
    assert found["GpuDriverUnavailable"].finding.severity is Severity.FATAL


def test_a_gpu_that_does_not_answer_is_lost() -> None:
    assert set(_faulty(_with(error="GPU is lost"))) == {"GpuLost"}


@pytest.mark.parametrize(
    ("action", "severity", "suggested"),
    [
        (1, Severity.FATAL, SuggestedAction.RESET_DEVICE),
        (2, Severity.FATAL, SuggestedAction.REBOOT_NODE),
        (3, Severity.DEGRADED, SuggestedAction.WATCH),
        (4, Severity.FATAL, SuggestedAction.RESET_DEVICE),
    ],
)
def test_what_the_driver_asks_for_is_a_finding(
    action: int, severity: Severity, suggested: SuggestedAction
) -> None:
    finding = _faulty(_with(recovery_action=action))["GpuRecoveryAction"].finding
    assert (finding.severity, finding.suggested_action) == (severity, suggested)


@pytest.mark.parametrize("action", [None, 99])
def test_a_driver_that_does_not_say_leaves_the_condition_as_it_is(action: int | None) -> None:
    judgements = judge_gpus(_with(recovery_action=action), 0, 1)
    (recovery,) = [j for j in judgements if j.key.condition == "GpuRecoveryAction"]
    assert isinstance(recovery, Unknown)


def test_fewer_gpus_than_configured_are_found() -> None:
    assert "GpuCountMismatch" in _faulty(_with(), expected=8)
    assert "GpuCountMismatch" not in _faulty(_with(), expected=1)


def test_row_remapping_flags_are_found() -> None:
    assert set(_faulty(_with(remap_failed=True))) == {"RowRemapFailed"}
    assert set(_faulty(_with(remap_pending=True))) == {"RowRemapPending"}


def test_a_driver_that_does_not_answer_is_a_fatal_finding() -> None:
    judgement, _ = judge_driver_hang("no answer within 5 s")
    assert isinstance(judgement, Faulty)
    assert judgement.finding.condition == "DriverHang"
    assert all(isinstance(one, Healthy) for one in judge_driver_hang(""))


def test_memory_that_runs_out_is_found() -> None:
    assert isinstance(judge_memory(_HOST), Healthy)
    low = dataclasses.replace(_HOST, memory_available_bytes=1)
    assert isinstance(judge_memory(low), Faulty)
