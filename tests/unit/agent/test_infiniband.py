"""Counters of InfiniBand ports in virtual time: rates, windows, narrow registers, resets, wraps."""

import itertools
from collections.abc import Mapping
from pathlib import Path

import pytest

from everstep_agent.detectors.conditions import CONDITIONS
from everstep_agent.detectors.links.errors import CountersReading, ErrorCounters, ErrorRule
from everstep_agent.detectors.links.history import LinkHistory
from everstep_agent.detectors.links.infiniband import DeviceFile, InfinibandDetector
from everstep_agent.detectors.links.infiniband_limits import InfinibandLimits
from everstep_agent.detectors.links.infiniband_rules import REGISTERS, rules
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.findings import Severity
from everstep_common.judging.judgement import Faulty, Unknown
from fakes.settings_files import mistakes_in
from unit.agent.link_time import Timeline, on

_PORT = "mlx5_0/1"
_READING_S = 5


class Port:
    """A port whose counters a test sets, read every 5 s of virtual time."""

    def __init__(self, counters: Counters | None = None) -> None:
        self.counters = counters or Counters()
        self.detector = InfinibandDetector(self.counters, LinkHistory())
        self.time = Timeline()
        self.values: dict[str, int] = dict.fromkeys(REGISTERS, 0)

    def read(self, values: Mapping[str, int] | None = None) -> list[str]:
        """Read once and return what was told."""
        self.values |= values or {}
        reading = CountersReading(link=_PORT, values=dict(self.values))
        return self.time.take(self.detector.judge([reading], self.time.now), _READING_S)

    def grow(self, name: str, by: int, times: int) -> list[str]:
        """Let a counter grow before each of so many readings, and return all that was told."""
        told = [self.read({name: self.values[name] + by}) for _ in range(times)]
        return list(itertools.chain(*told))

    def rest(self, seconds: int) -> list[str]:
        """Read on while nothing grows."""
        return list(itertools.chain(*[self.read() for _ in range(seconds // _READING_S)]))


_RATES = [rule for rule in rules(InfinibandLimits()) if not rule.window_s]
_WINDOWS = [rule for rule in rules(InfinibandLimits()) if rule.window_s]


@pytest.mark.parametrize("rule", _RATES, ids=lambda rule: rule.condition)
def test_a_rate_is_found_at_the_second_reading_and_ends_after_a_minute_below_it(
    rule: ErrorRule,
) -> None:
    (name,) = rule.counters
    port = Port()
    port.rest(10)
    by = int(rule.limit * _READING_S)
    below = port.grow(name, by - 1, 20)
    assert f"+{rule.condition}" not in below
    assert f"+{rule.condition}" not in port.grow(name, by, 1)
    assert f"+{rule.condition}" in port.grow(name, by, 1)
    assert f"-{rule.condition}" not in port.rest(55)
    assert f"-{rule.condition}" in port.rest(10)


@pytest.mark.parametrize("rule", _WINDOWS, ids=lambda rule: rule.condition)
def test_growth_within_a_window_is_found_at_once_and_ends_with_the_window(rule: ErrorRule) -> None:
    name = rule.counters[0]
    port = Port()
    port.rest(int(rule.window_s) + 10)
    told = port.grow(name, 1, int(rule.limit) - 1)
    assert f"+{rule.condition}" not in told
    assert f"+{rule.condition}" in port.grow(name, 1, 1)
    assert f"-{rule.condition}" in port.rest(int(rule.window_s) + 10)
    assert port.rest(600) == []


def test_a_burst_in_one_reading_is_no_rate() -> None:
    port = Port()
    port.rest(60)
    assert port.grow("port_rcv_errors", 5000, 1) == []
    assert port.rest(600) == []


def test_errors_of_a_lifetime_are_no_finding() -> None:
    port = Port()
    port.values |= {"symbol_error": 40_000, "local_link_integrity_errors": 7, "link_downed": 200}
    assert port.rest(7200) == []


def test_an_integrity_error_is_fatal() -> None:
    port = Port()
    port.rest(10)
    assert port.grow("local_link_integrity_errors", 1, 1) == ["+IbLinkIntegrity"]
    assert port.time.severity("IbLinkIntegrity") is Severity.FATAL


def test_what_another_node_may_have_caused_is_not_fatal() -> None:
    port = Port()
    port.rest(10)
    assert port.grow("req_transport_retries_exceeded", 3, 1) == ["+RdmaRetriesExceeded"]
    assert port.time.severity("RdmaRetriesExceeded") is Severity.DEGRADED


@pytest.mark.parametrize(
    ("name", "largest"),
    [("local_link_integrity_errors", 15), ("link_error_recovery", 255), ("symbol_error", 65535)],
)
def test_a_counter_that_is_full_is_told_and_judged_as_unknown(name: str, largest: int) -> None:
    port = Port()
    port.values[name] = largest
    assert port.read() == ["+LinkCounterSaturated"]
    reading = CountersReading(link=_PORT, values=port.values)
    judgements = list(port.detector.judge([reading], port.time.now))
    blind = [rule.condition for rule in rules(InfinibandLimits()) if name in rule.counters]
    for condition in blind:
        (judgement,) = on(judgements, condition)
        assert isinstance(judgement, Unknown)
    assert port.read({name: 0}) == ["-LinkCounterSaturated"]


def test_an_integrity_error_that_fills_its_register_stays_until_that_is_reset() -> None:
    port = Port()
    port.values["local_link_integrity_errors"] = 12
    port.rest(10)
    told = port.read({"local_link_integrity_errors": 15})
    assert set(told) == {"+IbLinkIntegrity", "+LinkCounterSaturated"}
    assert port.rest(4 * 3600) == []
    assert port.read({"local_link_integrity_errors": 0}) == [
        "-IbLinkIntegrity",
        "-LinkCounterSaturated",
    ]


def test_a_value_beyond_the_register_shows_a_counter_of_64_bits() -> None:
    port = Port()
    port.values["link_error_recovery"] = 300
    assert port.rest(10) == []
    # On its way up again after a reset it passes 255, where a narrow one would be full.
    assert port.read({"link_error_recovery": 255}) == ["+IbLinkRecoveries"]
    (saturated,) = on(
        port.detector.judge([CountersReading(link=_PORT, values=port.values)], port.time.now),
        "LinkCounterSaturated",
    )
    assert not isinstance(saturated, Faulty)


def test_a_counter_of_the_card_that_wraps_grew_by_what_was_left() -> None:
    errors, time = ErrorCounters(rules(InfinibandLimits()), REGISTERS, Counters()), Timeline()
    name = "local_ack_timeout_err"
    for value in (2**32 - 3, 20):
        grown = errors.grow(CountersReading(link=_PORT, values={name: value}), time.now)
        time.seconds += _READING_S
    assert (grown[name].count, grown[name].reset) == (23, False)


def test_a_reset_is_no_growth_of_what_was_there_before() -> None:
    port = Port()
    port.values["port_xmit_discards"] = 60_000
    port.rest(60)
    assert port.read({"port_xmit_discards": 3}) == []
    assert port.rest(600) == []


def test_errors_while_no_agent_ran_are_found_by_the_next_one() -> None:
    before = Port()
    before.rest(60)
    after = Port(Counters(before.counters.remembered()))
    after.time.seconds = before.time.seconds + 300
    assert after.read({"excessive_buffer_overrun_errors": 2}) == ["+IbBufferOverrun"]


def test_growth_over_a_long_absence_counts_only_as_much_as_the_window_holds() -> None:
    before = Port()
    before.rest(60)
    after = Port(Counters(before.counters.remembered()))
    # 1,000 symbol errors in ten hours are 100 in one.
    after.time.seconds = before.time.seconds + 36_000
    assert after.read({"symbol_error": 1000}) == []


def test_an_agent_that_restarts_does_not_clear_what_it_has_not_watched_for_long_enough() -> None:
    first = Port()
    first.rest(10)
    first.grow("local_link_integrity_errors", 1, 1)
    second = Port(Counters(first.counters.remembered()))
    second.time, second.values = first.time, first.values
    assert second.rest(3500) == []
    assert second.rest(120) == ["-IbLinkIntegrity"]


def test_a_loss_that_no_look_saw_is_told_by_link_downed() -> None:
    port = Port()
    port.rest(10)
    assert port.grow("link_downed", 1, 1) == ["+LinkBounced"]


def test_a_counter_that_is_not_there_is_not_judged() -> None:
    port = Port()
    reading = CountersReading(link=_PORT, values={"symbol_error": 0})
    judged = {j.key.condition for j in port.detector.judge([reading], port.time.now)}
    assert judged == {"IbSymbolErrors", "IbSymbolErrorsPerHour", "LinkCounterSaturated"}


def test_a_device_file_that_was_there_is_missed_in_three_looks() -> None:
    detector, time = InfinibandDetector(Counters(), LinkHistory()), Timeline()

    def look(there: bool | None) -> list[str]:
        file = DeviceFile(device="mlx5_0", path="/dev/infiniband/uverbs0", there=there)
        return time.take(detector.judge_files([file]))

    assert [look(False) for _ in range(5)] == [[]] * 5
    assert look(True) == []
    assert [look(False), look(None), look(False), look(False)][-1] == ["+RdmaDeviceFileMissing"]
    assert look(True) == ["-RdmaDeviceFileMissing"]


def test_every_rule_names_its_threshold_and_its_source() -> None:
    for rule in rules(InfinibandLimits()):
        condition = CONDITIONS[rule.condition]
        assert f"{rule.limit:g}" in condition.meaning
        assert condition.source


def test_limits_must_be_above_zero(tmp_path: Path) -> None:
    wrong = "[signals.infiniband]\ndiscards_per_s = 0\nfatal_kept_s = -1\n"
    assert sorted(mistakes_in(tmp_path, wrong)) == [
        "signals.infiniband.discards_per_s: must be above 0, got 0.0",
        "signals.infiniband.fatal_kept_s: must be above 0, got -1.0",
    ]
