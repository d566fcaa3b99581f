"""Links: what was up and is down, what is slower than before, and what was never used."""

from everstep_agent.detectors.judgement import Faulty, Healthy, Judgement, Unknown
from everstep_agent.detectors.links import LinkDetector, LinkReading
from everstep_common.findings import Severity


def _port(up: bool | None, gbits: int = 400) -> LinkReading:
    return LinkReading(name="mlx5_0/1", kind="infiniband", up=up, speed_bits_per_s=gbits * 10**9)


def _on(judgements: list[Judgement], condition: str) -> list[Judgement]:
    return [judgement for judgement in judgements if judgement.key.condition == condition]


def test_a_port_that_was_never_up_is_no_fault() -> None:
    assert _on(LinkDetector().judge([_port(False)]), "LinkDown") == []


def test_a_required_port_is_judged_from_the_beginning() -> None:
    (judgement,) = _on(LinkDetector(["mlx5_0/1"]).judge([_port(False)]), "LinkDown")
    assert isinstance(judgement, Faulty)


def test_an_rdma_port_that_goes_down_is_fatal_and_an_ethernet_link_degraded() -> None:
    detector = LinkDetector()
    eth = LinkReading(name="eth0", kind="ethernet", up=True)
    detector.judge([_port(True), eth])
    gone = LinkReading(name="eth0", kind="ethernet", up=False)
    judgements = _on(detector.judge([_port(False), gone]), "LinkDown")
    severities = {j.key.component: j.finding.severity for j in judgements if isinstance(j, Faulty)}
    assert severities == {"link/mlx5_0/1": Severity.FATAL, "link/eth0": Severity.DEGRADED}


def test_a_state_that_cannot_be_read_is_unknown() -> None:
    detector = LinkDetector()
    detector.judge([_port(True)])
    (judgement,) = _on(detector.judge([_port(None)]), "LinkDown")
    assert isinstance(judgement, Unknown)


def test_bridges_and_containers_come_and_go_without_a_finding() -> None:
    detector = LinkDetector()
    detector.judge([LinkReading(name="docker0", kind="virtual", up=True)])
    assert _on(detector.judge([]), "LinkDown") == []


def test_a_port_at_a_lower_rate_than_before_is_slow() -> None:
    detector = LinkDetector()
    detector.judge([_port(True, 400)])
    (slow,) = _on(detector.judge([_port(True, 100)]), "LinkSlow")
    assert isinstance(slow, Faulty)
    (fast,) = _on(detector.judge([_port(True, 400)]), "LinkSlow")
    assert isinstance(fast, Healthy)


def test_a_whole_class_that_vanishes_degrades_the_monitor() -> None:
    detector = LinkDetector()
    detector.judge([_port(True)])
    judgements = detector.judge([LinkReading(name="eth0", kind="ethernet", up=True)])
    (monitor,) = _on(judgements, "MonitorDegraded")
    assert isinstance(monitor, Faulty)
    (port,) = [j for j in _on(judgements, "LinkDown") if j.key.component == "link/mlx5_0/1"]
    assert isinstance(port, Unknown)
