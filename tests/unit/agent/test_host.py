"""The host: memory, limits of the kernel, clock, CPUs and memory modules, in virtual time."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.host.clock import ClockReading, judge_clock
from everstep_agent.detectors.host.cpu import CpuDetector, CpuReading
from everstep_agent.detectors.host.edac import DimmReading, EdacDetector
from everstep_agent.detectors.host.limits import HostLimits
from everstep_agent.detectors.host.usage import (
    HostReading,
    KernelUsage,
    Usage,
    UsageDetector,
    judge_memory,
)
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.clock import Stamp
from everstep_common.judging.findings import Severity, SuggestedAction
from everstep_common.judging.judgement import Judgement
from fakes.settings_files import mistakes_in
from unit.agent.open_book import OpenBook

_LIMITS = HostLimits()
_HOST = HostReading(
    cpu_busy_ratio=0.5,
    load_1m=1.0,
    memory_total_bytes=100 << 30,
    memory_available_bytes=50 << 30,
    tasks=1000,
)
_USAGE = KernelUsage(cpus=8, open_files=Usage(10, 100), tasks_max=32768, oom_kills=0)
_CLOCK = ClockReading(synchronized=True, offset_s=0.001, source="tsc")

Look = Callable[[Stamp], Sequence[Judgement]]


def _usage_look(usage: KernelUsage, host: HostReading = _HOST) -> Look:
    return lambda now: UsageDetector(_LIMITS, Counters()).judge(usage, host, now)


def _memory_look(host: HostReading) -> Look:
    return lambda _: [judge_memory(host)]


def _clock_look(clock: ClockReading) -> Look:
    return lambda _: judge_clock(clock)


def _cpu_look(*governors: tuple[str, int]) -> Look:
    reading = CpuReading(governors=governors)
    return lambda now: CpuDetector(_LIMITS, Counters()).judge(reading, now)


_CASES: dict[str, tuple[Look, Look]] = {
    "MemoryLow": (
        _memory_look(replace(_HOST, memory_available_bytes=1 << 30)),
        _memory_look(_HOST),
    ),
    "SwapInUse": (
        _usage_look(_USAGE, replace(_HOST, swap_used_bytes=1 << 30)),
        _usage_look(_USAGE),
    ),
    "HostOverloaded": (_usage_look(_USAGE, replace(_HOST, load_5m=17.0)), _usage_look(_USAGE)),
    "OpenFilesNearLimit": (
        _usage_look(replace(_USAGE, open_files=Usage(80, 100))),
        _usage_look(_USAGE),
    ),
    "TasksNearLimit": (_usage_look(_USAGE, replace(_HOST, tasks=30_000)), _usage_look(_USAGE)),
    "ConnectionsNearLimit": (
        _usage_look(replace(_USAGE, connections=Usage(99, 100))),
        _usage_look(replace(_USAGE, connections=Usage(9, 100))),
    ),
    "ClockUnsynchronized": (
        _clock_look(replace(_CLOCK, synchronized=False)),
        _clock_look(_CLOCK),
    ),
    "ClockOffset": (_clock_look(replace(_CLOCK, offset_s=-0.2)), _clock_look(_CLOCK)),
    "ClockSourceSlow": (_clock_look(replace(_CLOCK, source="hpet")), _clock_look(_CLOCK)),
    "CpuGovernor": (_cpu_look(("performance", 7), ("powersave", 1)), _cpu_look(("performance", 8))),
}


@pytest.mark.parametrize("name", _CASES)
def test_a_condition_is_raised_after_as_many_looks_as_it_says_and_clears_with_evidence(
    name: str,
) -> None:
    faulty, healthy = _CASES[name]
    rule, book = CONDITIONS[name], OpenBook()
    book.look(faulty, rule.raise_after - 1)
    assert book.open == set()
    book.look(faulty)
    assert book.open == {name}
    book.look(healthy, rule.clear_after - 1)
    assert book.open == {name}
    book.look(healthy)
    assert book.open == set()


@pytest.mark.parametrize(
    ("used", "severity"), [(80, Severity.DEGRADED), (94, Severity.DEGRADED), (95, Severity.FATAL)]
)
def test_a_node_that_is_about_to_run_out_of_files_is_fatal(used: int, severity: Severity) -> None:
    book = OpenBook()
    book.look(_usage_look(replace(_USAGE, open_files=Usage(used, 100))), 2)
    assert book.finding("OpenFilesNearLimit").severity is severity


def test_what_a_container_hides_is_not_judged() -> None:
    book = OpenBook()
    hidden = KernelUsage()
    assert not [j for j in _usage_look(hidden)(book.now) if j.key.condition.endswith("NearLimit")]
    assert judge_clock(ClockReading(synchronized=None)) == []


def test_processes_that_are_killed_for_memory_are_told_until_ten_minutes_are_quiet() -> None:
    detector, book = UsageDetector(_LIMITS, Counters()), OpenBook(interval_s=60)

    def look(kills: int) -> Look:
        return lambda now: detector.judge(replace(_USAGE, oom_kills=kills), _HOST, now)

    book.look(look(7))
    assert book.open == set(), "what was killed before the agent came is not told"
    book.look(look(8))
    assert book.open == {"ProcessesKilledForMemory"}
    severity = book.finding("ProcessesKilledForMemory").severity
    assert severity is Severity.INFO, "a job within its own limit is counted, too"
    book.look(look(8), 9)
    assert book.open == {"ProcessesKilledForMemory"}
    book.look(look(8))
    assert book.open == set()


def test_kills_of_a_boot_before_this_one_are_not_told() -> None:
    detector, book = UsageDetector(_LIMITS, Counters()), OpenBook()
    for kills in (0, 5):
        book.look(lambda now, k=kills: detector.judge(replace(_USAGE, oom_kills=k), _HOST, now))  # type: ignore[misc]
        book.reboot()
    assert book.open == set()


def test_the_governor_does_not_matter_where_the_operator_says_so_or_none_can_be_set() -> None:
    free = CpuDetector(HostLimits(cpu_governor=""), Counters())
    book = OpenBook()
    book.look(lambda now: free.judge(CpuReading(governors=(("powersave", 8),)), now), 5)
    book.look(_cpu_look(), 5)
    assert book.open == set()


def test_cpus_that_are_throttled_in_three_minutes_are_found_and_one_event_is_not() -> None:
    detector, book = CpuDetector(_LIMITS, Counters()), OpenBook(interval_s=60)

    def look(throttled: int) -> Look:
        return lambda now: detector.judge(CpuReading(throttled=throttled), now)

    for throttled in (100, 101, 102, 102, 103, 104):
        book.look(look(throttled))
        assert book.open == set()
    book.look(look(105))
    assert book.open == {"CpuThermalThrottle"}
    book.look(look(105), CONDITIONS["CpuThermalThrottle"].clear_after)
    assert book.open == set()


def test_a_memory_module_with_ten_corrected_errors_in_a_day_is_found_until_it_is_quiet() -> None:
    detector, book = EdacDetector(_LIMITS, Counters()), OpenBook(interval_s=3600)

    def look(corrected: int) -> Look:
        module = DimmReading("mc0/dimm3", "CPU_SrcID#0_Ha#0_Chan#1_DIMM#0", corrected, 0)
        return lambda now: detector.judge([module], now)

    book.look(look(500))
    for corrected in range(501, 510):
        book.look(look(corrected))
        assert book.open == set()
    book.look(look(510))
    assert book.open == {"DimmCorrectedErrors"}
    assert "CPU_SrcID#0" in book.finding("DimmCorrectedErrors").message
    book.look(look(510), 14)
    assert book.open == {"DimmCorrectedErrors"}
    book.look(look(510), 10)
    assert book.open == set()


def test_a_memory_module_that_lost_data_is_fatal_until_the_node_was_rebooted() -> None:
    detector, book = EdacDetector(_LIMITS, Counters()), OpenBook(interval_s=60)

    def look(uncorrected: int) -> Look:
        return lambda now: detector.judge([DimmReading("mc0/dimm3", "A1", 0, uncorrected)], now)

    book.look(look(0))
    book.look(look(1))
    finding = book.finding("DimmUncorrectedErrors")
    assert finding.severity is Severity.FATAL
    assert finding.suggested_action is SuggestedAction.REPAIR_HARDWARE
    book.look(look(1), 1000)
    assert book.open == {"DimmUncorrectedErrors"}
    book.reboot()
    book.look(look(0))
    assert book.open == set()


def test_every_wrong_limit_is_told_with_its_key(tmp_path: Path) -> None:
    wrong = (
        '[signals.host]\nmounts = ["data"]\nmount_deadline_s = 0\n'
        "usage_warning_ratio = 0.9\nusage_fatal_ratio = 0.8\ndisk_free_min_ratio = 2\n"
    )
    assert sorted(problem.split(":")[0] for problem in mistakes_in(tmp_path, wrong)) == [
        "signals.host.disk_free_min_ratio",
        "signals.host.mount_deadline_s",
        "signals.host.mounts",
        "signals.host.usage_fatal_ratio",
    ]
    assert HostLimits().problems() == []
