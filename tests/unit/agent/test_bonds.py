"""Bonds and Ethernet statistics: slaves, aggregators, unlike slaves; errors, drops, losses."""

from dataclasses import replace

import pytest

from everstep_agent.detectors.links.bonds import BondDetector, BondReading, BondSlave
from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.ethernet import EthernetDetector
from everstep_agent.detectors.links.history import LinkHistory
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.judgement import Faulty, Healthy, Unknown
from unit.agent.link_time import Timeline, on

_SLAVES = tuple(
    BondSlave(name=name, up=True, mtu=9000, speed_bits_per_s=10**11, aggregator="1")
    for name in ("eth0", "eth1")
)
_BOND = BondReading(name="bond0", mode="802.3ad", slaves=_SLAVES, aggregator="1")


def _with(**changes: object) -> BondReading:
    """Return the bond with a second slave that differs."""
    return replace(_BOND, slaves=(_SLAVES[0], replace(_SLAVES[1], **changes)))  # type: ignore[arg-type]


def test_a_bond_whose_slaves_are_all_in_use_is_healthy() -> None:
    assert all(isinstance(judgement, Healthy) for judgement in BondDetector().judge([_BOND]))


@pytest.mark.parametrize(
    ("bond", "condition", "rule"),
    [
        (_with(up=False), "BondDegraded", "a slave is down"),
        (replace(_BOND, slaves=_SLAVES[:1]), "BondDegraded", "a slave is gone"),
        (_with(aggregator="2"), "BondDegraded", "a slave is in another aggregator"),
        (
            replace(_BOND, mode="active-backup", active_slave=""),
            "BondDegraded",
            "no active slave",
        ),
        (_with(mtu=1500), "BondUneven", "slaves differ in MTU"),
        (_with(speed_bits_per_s=10**10), "BondUneven", "slaves differ in speed"),
    ],
)
def test_what_is_wrong_with_a_bond_is_told(bond: BondReading, condition: str, rule: str) -> None:
    detector = BondDetector()
    list(detector.judge([_BOND]))
    (judgement,) = on(detector.judge([bond]), condition)
    assert isinstance(judgement, Faulty)
    assert judgement.finding.rule == rule
    assert judgement.finding.component == "link/bond0"


def test_a_bond_is_raised_after_three_looks_and_cleared_after_ten() -> None:
    detector, time = BondDetector(), Timeline()
    told = [time.take(detector.judge([_with(up=False)])) for _ in range(3)]
    assert told == [[], [], ["+BondDegraded"]]
    told = [time.take(detector.judge([_BOND])) for _ in range(10)]
    assert told[-1] == ["-BondDegraded"]


def test_a_bond_that_was_removed_has_no_finding_any_more() -> None:
    detector, time = BondDetector(), Timeline()
    for _ in range(3):
        time.take(detector.judge([_with(up=False)]))
    told = [time.take(detector.judge([])) for _ in range(20)]
    assert [news for news in told if news] == [["-BondDegraded"]]


def test_a_slave_that_cannot_be_read_is_no_fault() -> None:
    judgements = list(BondDetector().judge([_with(up=None, mtu=0, speed_bits_per_s=0)]))
    assert all(isinstance(judgement, Healthy) for judgement in judgements)
    unread = replace(_BOND, slaves=None)
    assert all(isinstance(judgement, Unknown) for judgement in BondDetector().judge([unread]))


def _ethernet(seconds: int, values: list[dict[str, int]]) -> list[str]:
    detector, time = EthernetDetector(Counters(), LinkHistory()), Timeline()
    told: list[str] = []
    for one in values:
        reading = CountersReading(link="eth0", values=one)
        told += time.take(detector.judge([reading], time.now), seconds)
    return told


def test_damaged_packets_are_a_rate_over_both_directions() -> None:
    grown = [{"rx_errors": 30 * n, "tx_errors": 20 * n} for n in range(4)]
    assert _ethernet(5, grown) == ["+EthernetErrors"]
    assert _ethernet(5, [{"rx_errors": 30 * n} for n in range(4)]) == []


def test_some_drops_are_normal() -> None:
    assert _ethernet(5, [{"rx_dropped": 400 * n} for n in range(100)]) == []
    assert _ethernet(5, [{"rx_dropped": 500 * n} for n in range(4)]) == ["+EthernetDrops"]


def test_wrong_checksums_are_counted_over_an_hour() -> None:
    grown = [{"rx_crc_errors": n} for n in range(122)]
    assert _ethernet(5, grown) == ["+EthernetChecksumErrors"]
    assert _ethernet(60, grown) == []


def test_a_carrier_that_was_lost_between_two_looks_is_told() -> None:
    assert _ethernet(5, [{"carrier_down_count": n} for n in (7, 7, 8)]) == ["+LinkBounced"]
