"""GPU conditions that need time: rates, windows, comparison with peers."""

from pathlib import Path

import pytest

from everstep_agent.detectors.gpus.limits import GpuLimits
from everstep_agent.detectors.readings.counters import Counters
from fakes.settings_files import mistakes_in
from unit.agent.gpu_bench import GpuBench, clear_after, raise_after


def _corrected(bench: GpuBench, per_look: int, looks: int, seconds: int = 1) -> None:
    for _ in range(looks):
        bench.says(ecc_corrected=(bench.gpus[0].ecc_corrected or 0) + per_look)
        bench.look(seconds=seconds)


def test_a_few_corrected_errors_a_day_are_nothing() -> None:
    bench = GpuBench()
    bench.look()
    _corrected(bench, 1, 24, seconds=3600)
    assert bench.found() == set()


def test_a_steady_rate_of_corrected_errors_is_found_after_five_minutes_and_cleared() -> None:
    bench = GpuBench()
    bench.look()
    _corrected(bench, 11, 200)
    assert bench.found() == set()
    _corrected(bench, 11, 120)
    assert bench.found() == {"GpuEccCorrectedRate"}
    bench.look(300 + clear_after("GpuEccCorrectedRate"))
    assert bench.found() == set()


def test_a_storm_of_corrected_errors_is_found_within_a_minute() -> None:
    bench = GpuBench()
    bench.look()
    _corrected(bench, 17_657, 10)
    assert "GpuEccCorrectedStorm" in bench.found()


def test_rates_are_remembered_over_a_reboot_that_resets_the_counter() -> None:
    counters = Counters()
    bench = GpuBench(counters)
    bench.says(ecc_corrected=10_000_000)
    bench.look()
    rebooted = GpuBench(Counters(counters.remembered()), boot_id="boot-2", boot_ns=3700 * 10**9)
    rebooted.says(ecc_corrected=2_000_000)
    rebooted.look()
    # Two million in the 101 seconds since the last look; the reset does not hide them.
    assert "GpuEccCorrectedStorm" in rebooted.found()


def test_a_counter_that_is_unknown_for_a_while_holds_the_state() -> None:
    bench = GpuBench()
    bench.look()
    _corrected(bench, 17_657, 10)
    bench.says(ecc_corrected=None)
    bench.look(1000)
    assert "GpuEccCorrectedStorm" in bench.found()


def test_hardware_slowdown_in_six_of_ten_minutes_is_found_and_in_five_is_not() -> None:
    bench = GpuBench()
    for minute in range(5):
        bench.says(clock_reasons=0x8)
        bench.look()
        bench.says(clock_reasons=0)
        bench.look(59)
        assert bench.found() == set(), minute
    bench.says(clock_reasons=0x8)
    bench.look()
    assert bench.found() == {"GpuHardwareSlowdown"}
    bench.says(clock_reasons=0)
    bench.minutes(10)
    assert bench.found() == set()


def test_a_single_power_brake_look_is_nothing() -> None:
    bench = GpuBench()
    for _ in range(20):
        bench.says(clock_reasons=0x80)
        bench.look(2)
        bench.says(clock_reasons=0)
        bench.look(2)
    assert "GpuPowerBrake" not in bench.found()


def test_a_busy_gpu_that_is_slower_than_its_peers_for_no_reason_is_found() -> None:
    bench = GpuBench()
    bench.says(sm_clock_mhz=1400)
    bench.look(raise_after("GpuClocksLow"))
    assert bench.found() == {"GpuClocksLow"}
    bench.says(busy_ratio=0.1, sm_clock_mhz=345)
    bench.look(200)
    assert bench.found() == {"GpuClocksLow"}
    bench.says(busy_ratio=0.97, sm_clock_mhz=1980)
    bench.look(clear_after("GpuClocksLow"))
    assert bench.found() == set()


@pytest.mark.parametrize(
    "excuse",
    [
        {"busy_ratio": 0.5},
        {"clock_reasons": 0x4},
        {"sm_clock_mhz": 1700},
    ],
)
def test_a_slow_gpu_that_is_idle_capped_or_near_its_peers_is_not(excuse: dict[str, object]) -> None:
    bench = GpuBench()
    bench.says(sm_clock_mhz=1400)
    bench.says(**excuse)
    bench.look(200)
    assert "GpuClocksLow" not in bench.found()


def test_two_busy_gpus_cannot_say_which_is_slow() -> None:
    bench = GpuBench()
    bench.says(sm_clock_mhz=1000)
    for gpu in (2, 3):
        bench.says(gpu, busy_ratio=0.0)
    bench.look(200)
    assert bench.found() == set()


@pytest.mark.parametrize(("generation", "accepted"), [(3, 8), (4, 16), (5, 31)])
def test_pcie_replays_a_minute_are_compared_with_what_the_lanes_may_have(
    generation: int, accepted: int
) -> None:
    bench = GpuBench()
    bench.says(pcie_generation_max=generation, pcie_generation=generation)
    bench.look()
    bench.says(pcie_replays=accepted)
    bench.look(seconds=10)
    assert bench.found() == set()
    bench.says(pcie_replays=accepted + 1)
    bench.look(seconds=10)
    assert bench.found() == {"GpuPcieReplays"}
    bench.look(clear_after("GpuPcieReplays") + 6, seconds=10)
    assert bench.found() == set()


def test_an_nvlink_that_grows_errors_in_more_than_half_of_thirty_minutes_is_found() -> None:
    bench = GpuBench()
    bench.minutes(1)
    for minute in range(17):
        bench.link_says(link=2, replays=minute + 1)
        bench.minutes(1)
    assert bench.found() == {"NvlinkErrors"}
    assert "{2: 16}" in bench.finding("NvlinkErrors").evidence
    bench.minutes(31)
    assert bench.found() == set()


def test_an_nvlink_with_errors_in_every_third_minute_is_not() -> None:
    bench = GpuBench()
    for minute in range(90):
        if minute % 3 == 0:
            bench.link_says(link=2, recoveries=minute + 1)
        bench.minutes(1)
    assert bench.found() == set()


def test_many_crc_errors_of_an_nvlink_are_found_within_a_minute() -> None:
    bench = GpuBench()
    bench.look()
    for look in range(6):
        bench.link_says(link=1, crc=1100 * (look + 1))
        bench.look(seconds=10)
    assert bench.found() == {"NvlinkCrc"}
    bench.look(6 + clear_after("NvlinkCrc"), seconds=10)
    assert bench.found() == set()


def test_an_nvlink_that_was_active_and_is_down_is_found_and_cleared() -> None:
    bench = GpuBench()
    bench.look()
    bench.link_says(link=3, active=False)
    bench.look(raise_after("NvlinkDown") - 1)
    assert bench.found() == set()
    bench.look()
    assert bench.finding("NvlinkDown").evidence == "links down: [3]"
    bench.link_says(link=3, active=None)
    bench.look(100)
    bench.link_says(link=3, active=True)
    bench.look(clear_after("NvlinkDown"))
    assert bench.found() == set()


def test_an_nvlink_that_no_gpu_has_is_no_fault_and_one_that_most_have_is() -> None:
    bench = GpuBench()
    for gpu in range(4):
        bench.link_says(gpu, link=3, active=False)
    bench.link_says(0, link=2, active=False)
    bench.look(100)
    assert bench.found() == {"NvlinkDown"}
    assert bench.finding("NvlinkDown").component == "gpu/0000:3b:00.0"


def test_wrong_limits_are_all_refused_at_once(tmp_path: Path) -> None:
    limits = "[signals.gpu]\n"
    wrong = "ecc_storm_per_s = 0\nclock_ratio = 2\nslowdown_minutes = 11\nnvlink_windows = 30\n"
    assert sorted(mistakes_in(tmp_path, limits + wrong)) == [
        "signals.gpu.clock_ratio: must be at most 1, got 2.0",
        "signals.gpu.ecc_storm_per_s: must be above 0, got 0.0",
        "signals.gpu.nvlink_windows: must be at most 29, got 30",
        "signals.gpu.slowdown_minutes: must be at most 10, got 11",
    ]
    (problem,) = GpuLimits(ecc_storm_per_s=1).problems()
    assert problem == "signals.gpu.ecc_storm_per_s: must not be below ecc_corrected_per_s"
    (problem,) = mistakes_in(tmp_path, limits + "thermal_margin_c = 51\n")
    assert problem == "signals.gpu.thermal_margin_c: must be at most 50, got 51"
    assert GpuLimits().problems() == []


def _lone(bench: GpuBench, total: int) -> None:
    bench.link_says(0, link=2, recovery_events=total)
    bench.look(seconds=10)


def test_one_link_that_recovers_while_all_others_do_not_is_found() -> None:
    bench = GpuBench()
    _lone(bench, 505)
    bench.minutes(2)
    assert bench.found() == set()
    for total in (506, 507):
        _lone(bench, total)
        bench.minutes(7)
    assert bench.found() == {"NvlinkLoneErrors"}
    finding = bench.finding("NvlinkLoneErrors")
    assert finding.component == "gpu/0000:3b:00.0"
    assert "link 2: 507, 2 of them in the last hour" in finding.evidence
    bench.minutes(61)
    assert bench.found() == set()


def test_what_all_links_count_is_no_fault_of_one() -> None:
    bench = GpuBench()
    for step in range(8):
        for gpu in range(4):
            for link in range(4):
                bench.link_says(gpu, link=link, recovery_events=505 + step + 5 * link)
        bench.look(seconds=10)
    assert "NvlinkLoneErrors" not in bench.found()


def test_both_ends_of_one_link_may_stand_out() -> None:
    bench = GpuBench()
    for step in range(3):
        bench.link_says(0, link=2, recoveries=505 + step)
        bench.link_says(1, link=1, recoveries=500 + step)
        bench.look(seconds=10)
    bench.look()
    found = {k.finding.component for k in bench.book.open_findings}
    assert found == {"gpu/0000:3b:00.0", "gpu/0000:3c:00.0"}
