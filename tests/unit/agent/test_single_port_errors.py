"""Ports that retrain while none of their peers does, in virtual time."""

from everstep_agent.detectors.links.errors import CountersReading
from everstep_agent.detectors.links.history import LinkHistory
from everstep_agent.detectors.links.infiniband import InfinibandDetector
from everstep_agent.detectors.links.infiniband_rules import REGISTERS
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.findings import Severity
from unit.agent.link_time import Timeline

_NAME, _COUNTER = "IbLoneRecoveries", "link_error_recovery"
_HOUR_S = 3600


class Node:
    """A node with some ports, whose counters a test sets, read every minute of virtual time."""

    def __init__(self, ports: int = 8) -> None:
        self.detector = InfinibandDetector(Counters(), LinkHistory())
        self.time = Timeline()
        self.values = [dict.fromkeys(REGISTERS, 0) for _ in range(ports)]
        self.read(2)

    def read(self, times: int = 1, seconds: float = 60.0) -> list[str]:
        """Read so many times; return what was told of this condition."""
        told = []
        for _ in range(times):
            readings = [
                CountersReading(link=f"mlx5_{number}/1", values=dict(values))
                for number, values in enumerate(self.values)
            ]
            told += self.time.take(self.detector.judge(readings, self.time.now), seconds)
        return [one for one in told if one.endswith(_NAME)]

    def retrain(self, port: int, times: int = 1) -> list[str]:
        """Let a port retrain, and return what was told of it."""
        self.values[port][_COUNTER] += times
        return self.read()

    def evidence(self) -> str:
        """Return the evidence of the one open finding."""
        (found,) = self.time.book.open_findings
        return found.finding.evidence


def test_a_lone_link_is_told_from_its_first_retraining_and_never_more_than_told() -> None:
    """Its switch may be why, which only the controller can tell."""
    node = Node()
    assert node.retrain(3) == [f"+{_NAME}"]
    assert node.time.severity(_NAME) is Severity.INFO
    assert "1 within 24 h" in node.evidence()
    assert "7 peers have none" in node.evidence()
    node.read(13 * 60)
    node.retrain(3, 2)
    assert node.time.severity(_NAME) is Severity.INFO
    assert "3 within 24 h in link_error_recovery, more in the newer half" in node.evidence()


def test_it_is_cleared_a_day_after_the_last_one() -> None:
    node = Node()
    node.retrain(3)
    assert node.read(23) == []
    assert node.read(25, seconds=_HOUR_S) == [f"-{_NAME}"]


def test_what_two_ports_have_is_no_link_of_its_own() -> None:
    node = Node()
    assert node.retrain(3) == [f"+{_NAME}"]
    assert node.retrain(5) == [f"-{_NAME}"]
    assert node.retrain(5) == []


def test_all_ports_at_once_as_when_a_switch_restarts_are_nobodys() -> None:
    node = Node()
    for values in node.values:
        values[_COUNTER] += 1
    assert node.read(3) == []


def test_with_fewer_than_three_peers_nobody_is_the_odd_one() -> None:
    node = Node(ports=3)
    assert node.retrain(1, 5) == []


def test_a_counter_that_is_full_is_no_peer_and_no_lone_link() -> None:
    node = Node(ports=4)
    node.values[0][_COUNTER] = 255
    node.read(2, seconds=25 * _HOUR_S)
    assert node.retrain(1) == []


def test_what_grew_while_nobody_looked_counts_for_the_last_day_only() -> None:
    node = Node()
    node.time.seconds += 30 * 24 * _HOUR_S
    assert node.retrain(3, 20) == []
