"""Judges over samples: the odd node is found, and a fleet that is odd as a whole is not blamed."""

import math
import random

import pytest

from everstep_controller.judging.clock_skew import CLOCK_SKEWED
from everstep_controller.judging.sample_stream import SAMPLES_MISSING
from unit.judging.virtual_fleet import LOOK_S, VirtualFleet

SKEWED, MISSING = CLOCK_SKEWED.name, SAMPLES_MISSING.name
# Twenty minutes.
LONG = 240
# Sizes of fleets, and how often each is tried with other noise.
NOISY = {1: 20, 2: 20, 3: 20, 4: 20, 5: 20, 40: 10, 500: 2}


def quiet(size: int, seed: int = 1) -> VirtualFleet:
    """Return a fleet of which nothing was found in its first two minutes."""
    fleet = VirtualFleet(size, seed)
    assert fleet.look(24) == []
    return fleet


@pytest.mark.parametrize("size", NOISY)
def test_a_fleet_that_is_only_noisy_is_left_alone(size: int) -> None:
    for seed in range(NOISY[size]):
        assert VirtualFleet(size, seed).look(LONG // 2) == [], f"seed {seed}"


def test_samples_that_stop_are_found_soon_and_cleared_when_they_come_again() -> None:
    fleet = quiet(8)
    fleet.nodes["n3"].mute_from_s = fleet.now_s
    (raised,) = fleet.look(8)
    assert (raised.node, raised.key.condition) == ("n3", MISSING)
    assert raised.finding is not None
    assert raised.finding.mode is SAMPLES_MISSING.mode
    numbers = {one.name: one.value for one in raised.measurements}
    assert numbers["age_s"] >= 15 + numbers["median_s"]
    assert numbers["nodes"] == 8
    assert all(math.isfinite(value) for value in numbers.values())

    assert fleet.look(LONG) == [], "it is told once"
    fleet.nodes["n3"].mute_from_s = math.inf
    (cleared,) = fleet.look(SAMPLES_MISSING.clear_after)
    assert (cleared.node, cleared.key, cleared.finding) == ("n3", raised.key, None)
    assert "the newest sample is" in cleared.evidence


def test_samples_that_come_late_are_missing_as_well() -> None:
    fleet = quiet(8)
    fleet.nodes["n3"].delay_s = 25.0
    assert {one.node for one in fleet.look(8)} == {"n3"}


def test_a_stream_on_which_no_sample_ever_came_is_found() -> None:
    fleet = VirtualFleet(8)
    fleet.reconnect()
    fleet.nodes["n3"].mute_from_s = 0.0
    (raised,) = fleet.look(10)
    assert raised.node == "n3"
    assert "no sample came on this stream" in raised.evidence


@pytest.mark.parametrize("size", [1, 2, 3])
def test_with_fewer_than_four_nodes_nobody_is_the_odd_one(size: int) -> None:
    fleet = quiet(size)
    fleet.nodes["n0"].mute_from_s = fleet.now_s
    fleet.nodes["n0"].wall_offset_s += 3600
    assert fleet.look(LONG) == []


def test_all_samples_late_at_once_are_nobodys_fault() -> None:
    fleet = quiet(40)
    for node in fleet.nodes.values():
        node.mute_from_s = fleet.now_s
    assert fleet.look(LONG) == [], "the controller or the network is at fault"
    for node in fleet.nodes.values():
        node.mute_from_s = math.inf
    assert fleet.look(LONG) == []


def test_a_fleet_of_which_many_are_late_is_not_judged_node_by_node() -> None:
    fleet = quiet(40)
    for number in range(16):  # behind one leaf, say
        fleet.nodes[f"n{number}"].mute_from_s = fleet.now_s
    assert fleet.look(LONG) == []


def test_what_is_open_is_held_while_the_fleet_as_a_whole_is_late() -> None:
    fleet = quiet(8)
    fleet.nodes["n3"].mute_from_s = fleet.now_s
    fleet.look(8)
    for node in fleet.nodes.values():
        node.delay_s = 60.0
    fleet.nodes["n3"].mute_from_s = math.inf
    assert fleet.look(LONG) == []
    assert fleet.open == {("n3", MISSING)}


@pytest.mark.parametrize("offset_s", [0.2, -0.2, 3600.0])
def test_a_clock_that_differs_is_found_and_cleared_when_it_is_set(offset_s: float) -> None:
    fleet = quiet(8)
    fleet.nodes["n5"].wall_offset_s += offset_s
    (raised,) = fleet.look(CLOCK_SKEWED.raise_after)
    assert (raised.node, raised.key.condition) == ("n5", SKEWED)
    fleet.nodes["n5"].wall_offset_s -= offset_s
    (cleared,) = fleet.look(CLOCK_SKEWED.clear_after)
    assert cleared.finding is None


def test_the_controllers_own_clock_is_in_all_offsets_and_accuses_nobody() -> None:
    fleet = quiet(8)
    for node in fleet.nodes.values():
        node.wall_offset_s += 86_400.0
    assert fleet.look(LONG) == []


def test_an_offset_that_is_not_known_well_enough_is_no_evidence() -> None:
    fleet = quiet(8)
    node = fleet.nodes["n5"]
    node.wall_offset_s, node.uncertainty_s = node.wall_offset_s + 0.5, 0.5
    assert fleet.look(LONG) == []
    node.uncertainty_s = 0.01
    assert {one.node for one in fleet.look(3)} == {"n5"}


def test_a_clock_that_wavers_about_the_limit_is_raised_once_and_held() -> None:
    fleet = quiet(8)
    node = fleet.nodes["n5"]
    node.uncertainty_s = 0.001
    for offset_s in [0.054, 0.048] * LONG:
        node.wall_offset_s = 7.0 + offset_s
        fleet.look()
    assert [one.finding is not None for one in fleet.told] == [True]


def test_clocks_that_spread_widely_have_no_odd_one_among_them() -> None:
    fleet = VirtualFleet(40)
    for number, node in enumerate(fleet.nodes.values()):
        node.wall_offset_s = number * 1.0
    assert fleet.look(LONG) == []


@pytest.mark.parametrize("seed", range(10))
def test_how_far_clocks_spread_says_what_stands_out(seed: int) -> None:
    fleet, rng = VirtualFleet(40, seed), random.Random(seed)
    for node in fleet.nodes.values():
        node.wall_offset_s = rng.gauss(7.0, 0.025)
    assert fleet.look(LONG) == [], "many are above 50 ms, and none stands out"


def test_a_clock_of_which_nothing_is_known_is_not_judged_and_hides_no_other() -> None:
    fleet = quiet(8)
    fleet.nodes["n5"].wall_offset_s = math.nan
    fleet.nodes["n5"].uncertainty_s = math.nan
    assert fleet.look(LONG) == []
    fleet.nodes["n6"].wall_offset_s += 1.0
    assert {one.node for one in fleet.look(LONG)} == {"n6"}


def test_a_pause_of_the_controller_is_no_silence_of_the_nodes() -> None:
    fleet = quiet(40)
    fleet.now_s += 60 * LOOK_S
    for node in fleet.nodes.values():  # what came in the meantime was not read yet
        node.delay_s = 60 * LOOK_S
    fleet.look(2)
    for node in fleet.nodes.values():
        node.delay_s = 0.0
    fleet.look(LONG)
    assert fleet.told == []
