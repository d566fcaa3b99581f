"""Links: what was up and is down, what never came up, and what was never used."""

import itertools
from dataclasses import replace

from everstep_agent.detectors.links.detector import LinkDetector
from everstep_agent.detectors.links.limits import LinkLimits
from everstep_agent.detectors.links.reading import LinkReading
from everstep_agent.detectors.readings.counters import Counters
from everstep_common.judging.condition import BOOT_GRACE_NS
from everstep_common.judging.findings import Severity, SuggestedAction
from everstep_common.judging.judgement import Faulty, Healthy, Unknown
from unit.agent.link_time import SECOND_NS, Timeline, ethernet, on, port


def test_a_port_that_was_never_up_is_no_fault() -> None:
    assert on(LinkDetector().judge([port(False)], Timeline().now), "LinkDown") == []


def test_a_required_port_is_judged_from_the_beginning() -> None:
    judgements = LinkDetector(["mlx5_0/1"]).judge([port(False)], Timeline().now)
    (judgement,) = on(judgements, "LinkDown")
    assert isinstance(judgement, Faulty)
    # It has not just lost its link: nobody has seen it up.
    assert judgement.finding.severity is Severity.FATAL


def test_a_lost_link_is_told_at_the_first_look_and_is_fatal_when_it_stays_down() -> None:
    time, detector = Timeline(), LinkDetector()
    assert time.take(detector.judge([port(True)], time.now)) == []
    assert time.take(detector.judge([port(False)], time.now)) == ["+LinkDown"]
    assert time.severity("LinkDown") is Severity.DEGRADED
    told = [time.take(detector.judge([port(False)], time.now)) for _ in range(30)]
    # At the look that is 5 s after the first, and not again.
    assert [second for second, news in enumerate(told, 1) if news] == [5]
    finding = time.book.open_findings[0].finding
    assert (finding.severity, finding.suggested_action) == (
        Severity.FATAL,
        SuggestedAction.REPAIR_HARDWARE,
    )
    assert finding.message == "link mlx5_0/1 is down"


def test_a_port_for_storage_is_degraded_unless_the_operator_named_it() -> None:
    for required, expected in (([], Severity.DEGRADED), (["mlx5_0/1"], Severity.FATAL)):
        time, detector = Timeline(), LinkDetector(required)
        detector.beside = {"mlx5_0/1"}
        detector.judge([port()], time.now)
        for _ in range(10):
            time.take(detector.judge([port(False)], time.now))
        assert time.severity("LinkDown") is expected


def test_an_ethernet_link_that_stays_down_is_degraded_and_told_once() -> None:
    time, detector = Timeline(), LinkDetector()
    detector.judge([ethernet()], time.now)
    told = [time.take(detector.judge([ethernet(False)], time.now)) for _ in range(60)]
    assert list(itertools.chain(*told)) == ["+LinkDown"]
    assert time.severity("LinkDown") is Severity.DEGRADED


def test_a_link_that_is_back_clears_after_ten_looks_and_a_flapping_one_stays() -> None:
    time, detector = Timeline(), LinkDetector()
    time.take(detector.judge([port()], time.now))
    time.take(detector.judge([port(False)], time.now))
    for _ in range(20):
        looks = [port()] * 9 + [port(False)]
        told = [time.take(detector.judge([look], time.now)) for look in looks]
        assert "-LinkDown" not in itertools.chain(*told)
    # Never down for 5 s at a time: it got no worse by staying visible.
    assert time.severity("LinkDown") is Severity.DEGRADED
    told = [time.take(detector.judge([port()], time.now)) for _ in range(10)]
    assert told[-1] == ["-LinkDown"]


def test_a_fatal_link_that_bounces_stays_fatal_until_it_is_cleared() -> None:
    time, detector = Timeline(), LinkDetector()
    detector.judge([port()], time.now)
    for _ in range(10):
        time.take(detector.judge([port(False)], time.now))
    looks = [port(), port(False), port(False), port(), port(False)]
    assert [time.take(detector.judge([look], time.now)) for look in looks].count([]) >= 4
    assert time.severity("LinkDown") is Severity.FATAL


def test_links_that_come_up_late_after_a_boot_are_no_finding() -> None:
    detector, time = LinkDetector(["mlx5_0/1"]), Timeline(seconds=-3600)
    while time.now.boot_ns < BOOT_GRACE_NS - SECOND_NS:
        assert time.take(detector.judge([port(False)], time.now)) == []
    assert time.take(detector.judge([port(True)], time.now)) == []


def test_a_state_that_cannot_be_read_is_unknown() -> None:
    detector, now = LinkDetector(), Timeline().now
    detector.judge([port()], now)
    (judgement,) = on(detector.judge([port(None)], now), "LinkDown")
    assert isinstance(judgement, Unknown)


def test_bridges_and_containers_come_and_go_without_a_finding() -> None:
    detector, now = LinkDetector(), Timeline().now
    detector.judge([LinkReading(name="docker0", kind="virtual", up=True)], now)
    assert on(detector.judge([], now), "LinkDown") == []


def test_a_card_that_vanishes_from_the_bus_is_down_while_others_answer() -> None:
    time, detector = Timeline(), LinkDetector()
    time.take(detector.judge([port(number=0), port(number=1)], time.now))
    told = [time.take(detector.judge([port(number=1)], time.now)) for _ in range(40)]
    assert [second for second, news in enumerate(told) if news] == [30]
    (gone,) = [known.finding for known in time.book.open_findings]
    assert (gone.component, gone.severity) == ("link/mlx5_0/1", Severity.FATAL)
    assert gone.evidence == "no such device"


def test_a_bond_that_somebody_removes_is_no_fault_and_leaves_no_finding() -> None:
    time, detector = Timeline(), LinkDetector()
    bond = LinkReading(name="bond0", kind="bond", up=True)
    time.take(detector.judge([ethernet(), bond], time.now))
    time.take(detector.judge([ethernet(), replace(bond, up=False)], time.now))
    told = [time.take(detector.judge([ethernet()], time.now)) for _ in range(60)]
    assert list(itertools.chain(*told)) == ["-LinkDown"]


def test_a_driver_that_is_reloaded_is_no_finding_on_any_port() -> None:
    time, detector = Timeline(), LinkDetector(monitor="infiniband")
    ports = [port(number=number) for number in range(8)]
    waning = [ports[number:] for number in range(9) for _ in range(2)]
    waxing = [ports[:number] for number in range(9) for _ in range(2)]
    told = [
        time.take(detector.judge(there, time.now))
        for there in (ports, *waning, *([[]] * 60), *waxing, *([ports] * 3))
    ]
    assert list(itertools.chain(*told)) == ["+MonitorDegraded", "-MonitorDegraded"]


def test_a_whole_class_that_vanishes_degrades_the_monitor_and_holds_every_port() -> None:
    time, detector = Timeline(), LinkDetector(monitor="infiniband")
    ports = [port(number=number) for number in range(8)]
    time.take(detector.judge(ports, time.now))
    told = [time.take(detector.judge([], time.now)) for _ in range(3)]
    assert told == [[], [], ["+MonitorDegraded"]]
    down = on(detector.judge([], time.now), "LinkDown")
    assert len(down) == 8
    assert all(isinstance(judgement, Unknown) for judgement in down)
    told = [time.take(detector.judge(ports, time.now)) for _ in range(3)]
    assert told[-1] == ["-MonitorDegraded"]


def test_an_agent_that_restarts_knows_what_was_up_in_this_boot_and_not_in_another() -> None:
    counters, time = Counters(), Timeline()
    LinkDetector(counters=counters).judge([port(gbits=400)], time.now)
    again = LinkDetector(counters=Counters(counters.remembered()))
    (down,) = on(again.judge([port(False)], time.now), "LinkDown")
    assert isinstance(down, Faulty)
    (slow,) = on(again.judge([port(gbits=200)], time.now), "LinkSlow")
    assert isinstance(slow, Faulty)
    later = Timeline(boot="boot-2")
    after_reboot = LinkDetector(counters=Counters(counters.remembered()))
    assert on(after_reboot.judge([port(False)], later.now), "LinkDown") == []


def _never_up(ports: list[LinkReading], limits: LinkLimits | None = None) -> list[bool]:
    detector = LinkDetector(limits=limits or LinkLimits())
    judgements = on(detector.judge(ports, Timeline().now), "LinkNeverUp")
    return [isinstance(judgement, Faulty) for judgement in judgements]


def test_a_port_that_never_came_up_is_fatal_when_its_peers_are_up() -> None:
    ports = [port(number != 5, number) for number in range(8)]
    assert _never_up(ports) == [number == 5 for number in range(8)]


def test_a_port_without_peers_may_be_unused() -> None:
    assert not any(_never_up([port(True, 0), port(False, 1)]))
    # Every second port of a card of two: cabled like this on purpose.
    assert not any(_never_up([port(number % 2 == 0, number) for number in range(8)]))
    other = LinkReading(name="mlx5_9/1", kind="infiniband", up=False, family="MT41692 other")
    assert not any(_never_up([*(port(number=number) for number in range(8)), other]))


def test_a_port_that_never_came_up_is_raised_after_a_minute_and_cleared_when_it_does() -> None:
    time, detector = Timeline(), LinkDetector()
    ports = [port(number != 5, number) for number in range(8)]
    told = [time.take(detector.judge(ports, time.now)) for _ in range(61)]
    assert [second for second, news in enumerate(told, 1) if news] == [60]
    assert time.severity("LinkNeverUp") is Severity.FATAL
    ports[5] = port(True, 5)
    told = [time.take(detector.judge(ports, time.now)) for _ in range(10)]
    assert told[-1] == ["-LinkNeverUp"]


def test_a_port_at_a_lower_rate_than_before_is_slow() -> None:
    time, detector = Timeline(), LinkDetector()
    time.take(detector.judge([port(gbits=400)], time.now))
    told = [time.take(detector.judge([port(gbits=100)], time.now)) for _ in range(10)]
    assert told[-1] == ["+LinkSlow"]
    told = [time.take(detector.judge([port(gbits=400)], time.now)) for _ in range(10)]
    assert told[-1] == ["-LinkSlow"]


def test_a_port_that_came_up_slower_than_its_peers_is_slow() -> None:
    ports = [port(number=number, gbits=200 if number == 3 else 400) for number in range(8)]
    judgements = on(LinkDetector().judge(ports, Timeline().now), "LinkSlow")
    (slow,) = [judgement.finding for judgement in judgements if isinstance(judgement, Faulty)]
    assert slow.component == "link/mlx5_3/1"
    assert slow.rule == "below most links of the same build"
    assert slow.evidence == "200 Gbit/s, its peers 400 Gbit/s"


def test_ports_of_another_build_are_no_peers() -> None:
    slow = LinkReading(name="mlx5_9/1", kind="infiniband", up=True, speed_bits_per_s=10**11)
    ports = [*(port(number=number) for number in range(8)), slow]
    judgements = on(LinkDetector().judge(ports, Timeline().now), "LinkSlow")
    assert all(isinstance(judgement, Healthy) for judgement in judgements)


def test_half_duplex_is_a_finding() -> None:
    link = LinkReading(name="eth0", kind="ethernet", up=True, duplex="half")
    (judgement,) = on(LinkDetector().judge([link], Timeline().now), "LinkHalfDuplex")
    assert isinstance(judgement, Faulty)
