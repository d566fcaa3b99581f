"""The evaluator: what is open is the core's, and nothing that it was told is forgotten."""

import math

import pytest

from everstep_common.judging.findings import Finding, Severity
from everstep_controller.judging.clock_skew import ClockSkewJudge
from everstep_controller.judging.evaluator import Evaluator, Verdict
from everstep_controller.judging.sample_stream import SAMPLES_MISSING
from unit.judging.virtual_fleet import S, VirtualFleet

MISSING = SAMPLES_MISSING.name


def with_an_open_finding() -> VirtualFleet:
    """Return a fleet in which the samples of n3 are missing."""
    fleet = VirtualFleet(8)
    fleet.look(5)
    fleet.nodes["n3"].mute_from_s = fleet.now_s
    fleet.look(10)
    assert fleet.open == {("n3", MISSING)}
    return fleet


def test_a_finding_survives_a_restart_of_the_controller_and_is_cleared_after_it() -> None:
    fleet = with_an_open_finding()
    fleet.restart()
    fleet.reconnect()
    assert fleet.look(100) == [], "that its stream is young shows nothing, and it is known"
    fleet.nodes["n3"].mute_from_s = math.inf
    (cleared,) = fleet.look(3)
    assert cleared.finding is None
    assert fleet.open == set()


def test_a_finding_survives_a_reconnect_of_the_agent() -> None:
    fleet = with_an_open_finding()
    for _ in range(100):
        fleet.reconnect("n3")
        assert fleet.look() == [], "a stream that is young again and again brings no samples"


def test_a_node_that_is_away_is_held() -> None:
    fleet = with_an_open_finding()
    fleet.nodes["n3"].heard = False
    assert fleet.look(100) == []
    assert fleet.open == {("n3", MISSING)}


def test_a_change_that_did_not_reach_the_core_is_made_again() -> None:
    fleet = with_an_open_finding()
    fleet.verdicts.clear()  # as when the journal could not be written
    (again,) = fleet.look(SAMPLES_MISSING.raise_after)
    assert again.node == "n3"


def test_what_no_judge_of_this_version_knows_is_cleared() -> None:
    fleet = VirtualFleet(8, judges=(ClockSkewJudge(),))
    odd = Finding(component="x", condition="Gone", severity=Severity.DEGRADED, message="odd")
    fleet.verdicts["n1"] = {odd.key: Verdict(odd, S)}
    (cleared,) = fleet.look()
    assert (cleared.node, cleared.key, cleared.finding) == ("n1", odd.key, None)
    assert fleet.look(10) == []


def test_a_look_that_shows_nothing_of_a_node_neither_raises_nor_clears() -> None:
    fleet = VirtualFleet(8)
    fleet.look(5)
    late = fleet.nodes["n3"]
    late.mute_from_s = fleet.now_s
    while not fleet.told:  # one late look, then one of which nothing is known, again and again
        late.heard = not late.heard
        fleet.look()
        assert fleet.now_s < 1000
    assert fleet.open == {("n3", MISSING)}


def test_one_late_message_among_good_ones_is_not_raised() -> None:
    fleet = VirtualFleet(8)
    fleet.look(5)
    for _ in range(50):
        fleet.nodes["n3"].delay_s = 25.0
        fleet.look()
        fleet.nodes["n3"].delay_s = 0.0
        fleet.look()
    assert fleet.told == []


def test_two_judges_of_one_condition_are_refused() -> None:
    with pytest.raises(ValueError, match="two judges"):
        Evaluator((ClockSkewJudge(), ClockSkewJudge(floor_s=1.0)))
