"""Every condition of a GPU that is raised by one kind of reading: raised, held, cleared."""

from dataclasses import replace

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.gpus.presence import judge_driver_hang
from everstep_agent.detectors.gpus.reading import (
    FabricReading,
    GpuProcess,
    GpusReading,
    MigDevice,
)
from everstep_common.clock import Stamp
from everstep_common.judging.book import FindingBook
from everstep_common.judging.findings import Severity
from unit.agent.gpu_bench import HEALTHY, PEERS, GpuBench, clear_after, raise_after

# What raises a condition, what says nothing about it, and what shows that it is over.
_CASES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "GpuRecoveryAction": ({"recovery_action": 1}, {"recovery_action": None}),
    "RowRemapFailed": ({"remap_failed": True}, {"remap_failed": None}),
    "RowRemapPending": ({"remap_pending": True}, {"remap_pending": None}),
    "RowRemapExhausted": (
        {"remapped_uncorrected": 512},
        {"remapped_uncorrected": None, "remap_banks_exhausted": None},
    ),
    "GpuEccUncorrected": ({"ecc_uncorrected": 1}, {"ecc_uncorrected": None}),
    "GpuSramUncorrected": ({"sram_parity": 1}, {"sram_parity": None, "sram_secded": None}),
    "GpuSramThreshold": ({"sram_threshold_exceeded": True}, {"sram_threshold_exceeded": None}),
    "GpuPagesRetired": (
        {"retired_single_bit": 40, "retired_double_bit": 23},
        {"retired_single_bit": None},
    ),
    "GpuPageRetirementPending": ({"retired_pending": True}, {"retired_pending": None}),
    "GpuEccDisabled": ({"ecc_enabled": False}, {"ecc_enabled": None}),
    "GpuPowerBrake": ({"clock_reasons": 0x80}, {"clock_reasons": None}),
    "GpuThermalSlowdown": ({"clock_reasons": 0x20}, {"clock_reasons": None}),
    "GpuTemperatureHigh": (
        {"temperature_c": 87.0},
        {"temperature_c": None, "memory_temperature_c": None, "thermal_margin_c": None},
    ),
    "GpuPcieWidth": ({"pcie_width": 8}, {"pcie_width": None}),
    "GpuPcieGeneration": ({"pcie_generation": 4}, {"pcie_generation": 4, "busy_ratio": 0.0}),
    "GpuFabricUnhealthy": (
        {"fabric": FabricReading(state=3, health_mask=0x01)},
        {"fabric": FabricReading(state=3)},
    ),
    "GpuPersistenceOff": ({"persistence": False}, {"persistence": None}),
    "GpuMemoryUnowned": ({"memory_used_bytes": 2 << 30}, {"processes": None}),
}


@pytest.mark.parametrize("condition", _CASES)
def test_it_is_raised_after_its_looks_held_while_nobody_knows_and_cleared_with_evidence(
    condition: str,
) -> None:
    faulty, unknown = _CASES[condition]
    bench = GpuBench()
    bench.says(**faulty)
    bench.look(raise_after(condition) - 1)
    assert bench.found() == set()
    bench.look()
    assert bench.found() == {condition}
    assert bench.finding(condition).component == "gpu/0000:3b:00.0"
    bench.gpus = (HEALTHY, *bench.gpus[1:])
    bench.says(**unknown)
    bench.look(100)
    # What a GPU told before and no longer tells is a condition of its own.
    assert bench.found() - {"GpuMetricsVanished"} == {condition}
    bench.gpus = (HEALTHY, *bench.gpus[1:])
    bench.look(clear_after(condition) - 1)
    assert bench.found() == {condition}
    bench.look()
    assert bench.found() == set()


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({"sram_parity": 2, "sram_secded": None}, {"GpuSramUncorrected"}),
        ({"sram_parity": None, "sram_secded": 1}, {"GpuSramUncorrected"}),
        ({"sram_parity": 0, "sram_secded": None}, set()),
        # Errors before the driver was loaded are told by the threshold, not by the counts.
        ({"sram_parity_aggregate": 5, "sram_secded_aggregate": 5}, set()),
    ],
)
def test_either_kind_of_uncorrected_cache_error_counts_since_the_driver_was_loaded(
    said: dict[str, object], found: set[str]
) -> None:
    bench = GpuBench()
    bench.says(**said)
    bench.look(raise_after("GpuSramUncorrected"))
    assert bench.found() == found


def test_a_healthy_node_has_no_finding_for_an_hour() -> None:
    bench = GpuBench(expected=4)
    bench.minutes(60)
    assert bench.found() == set()


@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_gpu_that_goes_on_answering_in_time_is_not_lost(gone: int) -> None:
    bench = GpuBench()
    bench.says(error="GPU is lost", error_code=15)
    bench.look(gone - 1)
    bench.says(error="", error_code=None)
    bench.look()
    assert bench.found() == set()


@pytest.mark.parametrize(
    ("code", "condition"), [(15, "GpuLost"), (999, "GpuLost"), (16, "GpuResetRequired")]
)
def test_a_gpu_that_gives_no_answer_is_told_by_the_drivers_word(code: int, condition: str) -> None:
    bench = GpuBench()
    bench.says(error="no answer", error_code=code)
    bench.look(raise_after(condition))
    assert bench.found() == {condition}
    assert bench.finding(condition).severity is Severity.FATAL
    bench.says(error="", error_code=None)
    bench.look(clear_after(condition))
    assert bench.found() == set()


def test_all_gpus_silent_at_once_are_one_finding_of_the_driver() -> None:
    bench = GpuBench()
    for gpu in range(4):
        bench.says(gpu, error="Unknown Error", error_code=999)
    bench.look(raise_after("GpuDriverUnavailable"))
    assert bench.found() == {"GpuDriverUnavailable"}
    bench.gpus = GpuBench().gpus
    bench.look(clear_after("GpuDriverUnavailable"))
    assert bench.found() == set()


def test_a_gpu_that_is_not_listed_any_more_is_lost_until_it_is_back() -> None:
    bench = GpuBench()
    bench.look()
    everything = bench.gpus
    bench.gpus = everything[:3]
    bench.look(raise_after("GpuLost"))
    assert bench.finding("GpuLost").component == f"gpu/{everything[3].pci}"
    bench.gpus = everything
    bench.look(clear_after("GpuLost"))
    assert bench.found() == set()


def test_a_gpu_that_was_lost_before_it_had_an_address_is_cleared_when_it_says_it() -> None:
    bench = GpuBench()
    bench.says(2, uuid="", pci="index-2", error="GPU is lost", error_code=15)
    bench.look(raise_after("GpuLost"))
    assert bench.finding("GpuLost").component == "gpu/index-2"
    bench.gpus = GpuBench().gpus
    bench.look(clear_after("GpuLost"))
    assert bench.found() == set()


@pytest.mark.parametrize(
    "hot",
    [
        {"temperature_c": 87.0},
        {"memory_temperature_c": 96.0},
        {"thermal_margin_c": 0},
        {"thermal_margin_c": -3},
    ],
)
def test_heat_is_judged_by_the_gpus_own_limits(hot: dict[str, object]) -> None:
    bench = GpuBench()
    bench.says(**hot)
    bench.look(raise_after("GpuTemperatureHigh"))
    assert bench.found() == {"GpuTemperatureHigh"}


def test_a_gpu_without_limits_of_its_own_is_not_judged() -> None:
    bench = GpuBench()
    limits = ("temperature_max_c", "memory_temperature_max_c", "thermal_margin_c")
    bench.says(temperature_c=120.0, **dict.fromkeys(limits))
    bench.look(100)
    assert bench.found() == set()


def test_a_bank_without_spare_rows_is_found() -> None:
    bench = GpuBench()
    bench.says(remap_banks_exhausted=1)
    bench.look()
    assert bench.found() == {"RowRemapExhausted"}


def test_more_than_one_double_bit_page_in_a_week_is_found_above_fifteen() -> None:
    bench = GpuBench()
    bench.says(retired_double_bit=16)
    bench.look(10)
    assert bench.found() == set()
    bench.says(retired_double_bit=18)
    bench.look()
    assert bench.found() == {"GpuPagesRetired"}
    bench.look(1, seconds=8 * 24 * 3600)
    assert bench.found() == set()


@pytest.mark.parametrize(
    ("fabric", "condition"),
    [
        (FabricReading(state=1), "GpuFabricNotJoined"),
        (FabricReading(state=2), "GpuFabricNotJoined"),
        (FabricReading(state=3, status=999), "GpuFabricNotJoined"),
        (FabricReading(state=3, health_mask=0x10, health_summary=0), "GpuFabricUnhealthy"),
        (FabricReading(state=3, health_mask=0x5A2), "GpuFabricUnhealthy"),
        (FabricReading(state=3, health_mask=0xAA, health_summary=3), "GpuFabricUnhealthy"),
    ],
)
def test_a_fabric_that_is_not_joined_or_unhealthy_is_found(
    fabric: FabricReading, condition: str
) -> None:
    bench = GpuBench()
    bench.says(fabric=fabric)
    bench.look(raise_after(condition))
    assert bench.found() == {condition}
    bench.gpus = GpuBench().gpus
    bench.look(clear_after(condition))
    assert bench.found() == set()


@pytest.mark.parametrize(
    "fabric",
    [
        None,
        FabricReading(state=0),
        FabricReading(state=3, health_mask=0),
        # 2 in each field is "no fault", and any non-zero mask is not: a known false alarm.
        FabricReading(state=3, health_mask=0xAA | 1 << 8 | 2 << 12 | 2 << 14),
    ],
)
def test_a_fabric_that_is_not_there_or_has_no_fault_is_not_found(
    fabric: FabricReading | None,
) -> None:
    bench = GpuBench()
    bench.says(fabric=fabric)
    bench.look(100)
    assert bench.found() == set()


def test_memory_of_a_process_that_is_gone_is_found_and_owned_memory_is_not() -> None:
    bench = GpuBench()
    bench.says(memory_used_bytes=60 << 30, processes=(GpuProcess(77, 60 << 30),))
    bench.look(100)
    assert bench.found() == set()
    bench.dead_pids = (77,)
    bench.look(raise_after("GpuMemoryUnowned"))
    assert bench.finding("GpuMemoryUnowned").evidence == "processes that do not exist: 77"


def test_a_sliced_gpu_is_not_judged_by_what_slices_change() -> None:
    bench = GpuBench()
    bench.look()
    bench.says(
        mig_enabled=True,
        mig_devices=(MigDevice("MIG-1", "MIG 1g.10gb"),),
        busy_ratio=None,
        sm_clock_mhz=300,
        memory_used_bytes=10 << 30,
        fabric=FabricReading(state=1),
    )
    for link in range(4):
        bench.link_says(link=link, active=False)
    bench.look(200)
    assert bench.found() == set()


def test_gpus_of_one_model_with_different_firmware_or_limits_are_told() -> None:
    bench = GpuBench()
    bench.says(2, vbios="95.00", power_limit_w=500.0)
    bench.look(raise_after("GpuVersionsDiffer"))
    assert bench.found() == {"GpuVersionsDiffer", "GpuPowerLimitsDiffer"}
    assert "GPU 0000:3d:00.0 VBIOS 95.00" in bench.finding("GpuVersionsDiffer").evidence
    bench.says(2, name="NVIDIA T4")
    bench.look()
    assert bench.found() == set()


def test_power_that_only_one_gpu_does_not_tell_is_found() -> None:
    bench = GpuBench()
    bench.says(1, power_w=None)
    bench.look(raise_after("GpuPowerUnreadable"))
    assert bench.finding("GpuPowerUnreadable").component == "gpu/0000:3c:00.0"
    for gpu in range(4):
        bench.says(gpu, power_w=None)
    bench.look(100)
    assert bench.found() == {"GpuPowerUnreadable"}
    bench.says(1, power_w=300.0)
    bench.look(clear_after("GpuPowerUnreadable"))
    assert "gpu/0000:3c:00.0" not in {known.finding.component for known in bench.book.open_findings}


def test_another_number_of_gpus_than_expected_is_found() -> None:
    bench = GpuBench(expected=8)
    bench.look(raise_after("GpuCountMismatch"))
    assert bench.found() == {"GpuCountMismatch"}


def test_what_is_read_rarely_is_judged_only_when_it_was_read() -> None:
    bench = GpuBench()
    bench.says(pcie_width=8)
    bench.look(100, complete=False)
    assert bench.found() == set()


def test_a_lost_gpu_that_a_new_process_knows_by_number_only_is_no_second_device() -> None:
    bench = GpuBench()
    bench.look(3)
    bench.detector.named(GpusReading(gpus=PEERS))
    bench.says(2, error="GPU is lost", error_code=15)
    bench.look(20)
    bench.says(2, uuid="", pci="index-2", name="NVIDIA GPU")
    reading = bench.detector.named(GpusReading(gpus=bench.gpus))
    assert reading.gpus[2].component == PEERS[2].component
    bench.gpus = reading.gpus
    bench.look(20)
    lost = [one.finding.component for one in bench.book.open_findings]
    assert lost == [PEERS[2].component]


def test_a_lost_gpu_is_one_of_the_missing_when_the_numbers_have_moved() -> None:
    bench = GpuBench()
    bench.look(3)
    bench.detector.named(GpusReading(gpus=PEERS))
    moved = (PEERS[0], PEERS[1], replace(PEERS[3], index=2), replace(PEERS[2], index=3, uuid=""))
    reading = bench.detector.named(GpusReading(gpus=moved))
    assert reading.gpus[3].component == PEERS[2].component


def test_a_number_that_may_be_any_of_several_gets_no_name() -> None:
    bench = GpuBench()
    bench.detector.named(GpusReading(gpus=PEERS))
    few = (PEERS[0], replace(PEERS[2], index=7, uuid="", pci="index-7"))
    reading = bench.detector.named(GpusReading(gpus=few))
    assert reading.gpus[1].component == "gpu/index-7"


def test_a_driver_that_misses_one_deadline_is_suspect_and_not_yet_hung() -> None:
    book = FindingBook(CONDITIONS)
    now = Stamp("boot-1", 10**13, 10**13)
    book.enter_judgements(judge_driver_hang("no answer within 5 s"), now)
    (silent,) = (known.finding for known in book.open_findings)
    assert (silent.condition, silent.severity) == ("DriverSilent", Severity.DEGRADED)
    for _ in range(2):
        book.enter_judgements(judge_driver_hang("no answer within 5 s"), now)
    assert {known.finding.condition for known in book.open_findings} == {
        "DriverSilent",
        "DriverHang",
    }


def test_a_gpu_that_stops_telling_what_its_peers_tell_is_found() -> None:
    bench = GpuBench()
    bench.look()
    bench.says(2, temperature_c=None, sm_clock_mhz=None)
    bench.look(raise_after("GpuMetricsVanished") - 1)
    assert "GpuMetricsVanished" not in bench.found()
    bench.look()
    assert bench.finding("GpuMetricsVanished").component == "gpu/0000:3d:00.0"
    assert bench.finding("GpuMetricsVanished").evidence == (
        "missing: temperature_c, sm_clock_mhz; 3 peers"
    )
    bench.says(2, temperature_c=50.0, sm_clock_mhz=1980)
    bench.look(clear_after("GpuMetricsVanished"))
    assert "GpuMetricsVanished" not in bench.found()


def test_what_no_gpu_tells_any_more_is_not_the_gpus() -> None:
    bench = GpuBench()
    bench.look()
    for gpu in range(4):
        bench.says(gpu, temperature_c=None)
    bench.look(2 * raise_after("GpuMetricsVanished"))
    assert "GpuMetricsVanished" not in bench.found()


def test_what_a_gpu_never_told_and_what_slices_hide_has_not_vanished() -> None:
    bench = GpuBench()
    bench.says(1, temperature_c=None)
    bench.look()
    bench.says(2, busy_ratio=None, mig_enabled=True)
    bench.look(2 * raise_after("GpuMetricsVanished"))
    assert "GpuMetricsVanished" not in bench.found()
