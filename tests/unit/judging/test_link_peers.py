"""Links beside their peers: one that begins to fail is found, and a switch names no node."""

import re
from dataclasses import replace

import pytest

from everstep_common.reports.link_columns import LinkRow, pack_links
from everstep_controller.judging.link_errors import FRESH_NS, LinkErrors
from simulation.seeds import seeds
from unit.judging.virtual_links import LOOKS, LOSS, RECOVERY, SYMBOL, VirtualLinks


def _noise(fleet: VirtualLinks) -> None:
    """Have one minute of a healthy fleet: links retrain once in a hundred days, each on its own."""
    links = fleet.nodes * fleet.ports
    for counter in (RECOVERY, LOSS):
        for _ in range(fleet.rng.poisson(links / (100 * 24 * 60))):
            node, port = fleet.rng.integers((fleet.nodes, fleet.ports)).tolist()
            fleet.fail(node, port, counter)


@pytest.mark.parametrize("counter", [RECOVERY, LOSS])
def test_a_port_that_fails_in_three_minutes_of_a_day_while_none_like_it_does_is_found(
    counter: int,
) -> None:
    fleet = VirtualLinks(32)
    for _ in range(3):
        assert fleet.open == set()
        fleet.fail(5, 3, counter)
        fleet.pass_minutes(120, looks=LOOKS if len(fleet.errors[5, 3, counter]) > 2 else 1)
    assert fleet.open == {"n5"}
    (raised,) = fleet.told
    word = "has retrained" if counter == RECOVERY else "has lost its link"
    assert f"mlx5_3/1 {word} in 3 minutes of 24 h" in raised.evidence
    assert "beside 0 on 7 nodes like it" in raised.evidence
    numbers = {one.name: one.value for one in raised.measurements}
    assert numbers == {"minutes": 3, "peers_most_minutes": 0, "peers": 7}


def test_it_is_over_when_it_has_been_well_for_a_day_and_held_meanwhile() -> None:
    fleet = VirtualLinks(8)
    for _ in range(3):
        fleet.fail(5, 3)
        fleet.pass_minutes(5)
    assert fleet.open == {"n5"}
    fleet.pass_minutes(23 * 60, looks=1)
    assert fleet.open == {"n5"}
    fleet.pass_minutes(90)
    assert fleet.open == set()


@pytest.mark.parametrize("domains", [True, False])
@pytest.mark.parametrize("nodes", [7, 64])
def test_a_switch_that_flaps_all_its_links_names_no_node(nodes: int, domains: bool) -> None:
    fleet = VirtualLinks(nodes, domains=() if domains else [""] * nodes)
    for minutes in (1, 1, 7, 1, 1, 90, 1, 3, 30):
        fleet.flap_leaf(0, 2)
        fleet.pass_minutes(minutes)
    assert fleet.told == []


def test_a_leaf_that_serves_one_node_of_another_rack_does_not_name_it() -> None:
    """All others of that node's failure domain have none of it."""
    fleet = VirtualLinks(64)
    for _ in range(6):
        fleet.flap_leaf(0, 2)
        for counter in (RECOVERY, LOSS):
            fleet.fail(40, 2, counter)
        fleet.pass_minutes(20)
    assert fleet.told == []


def test_a_link_of_a_switch_that_has_flapped_is_found_when_it_goes_on_alone() -> None:
    fleet = VirtualLinks(32)
    fleet.flap_leaf(0, 2)
    fleet.pass_minutes(60, looks=1)
    for _ in range(3):
        fleet.fail(5, 2)
        fleet.pass_minutes(10)
    assert fleet.open == {"n5"}
    assert "in 4 minutes of 24 h (link_error_recovery), beside at most 1" in fleet.told[0].evidence


def test_a_switch_that_flapped_before_most_agents_began_to_watch_names_nobody() -> None:
    """One agent was not restarted, and is the only one that remembers it."""
    fleet = VirtualLinks(32)
    for _ in range(4):
        fleet.flap_leaf(0, 2)
        fleet.pass_minutes(10)
    fleet.restart_agents(node for node in range(32) if node != 5)
    fleet.pass_minutes(10 * 60, looks=1)
    fleet.pass_minutes(5)
    assert fleet.told == []


def test_symbol_errors_within_what_a_link_may_have_are_nobodys() -> None:
    fleet = VirtualLinks(16)
    for _ in range(40):
        fleet.fail(5, 3, SYMBOL)
        fleet.pass_minutes(36, looks=1)
    fleet.pass_minutes(5)
    assert fleet.told == []
    for _ in range(60):
        fleet.fail(12, 3, SYMBOL)
        fleet.pass_minutes(1)
    fleet.pass_minutes(2)
    assert fleet.open == {"n12"}
    assert "has counted symbol errors in 60 minutes" in fleet.told[-1].evidence


def test_where_all_cables_count_symbol_errors_nobody_stands_out() -> None:
    fleet = VirtualLinks(16)
    for _ in range(90):
        for node in range(16):
            fleet.fail(node, 1, SYMBOL)
        fleet.pass_minutes(1, looks=1)
    fleet.pass_minutes(3)
    assert fleet.told == []


def test_nodes_with_one_port_are_compared_and_those_with_too_few_peers_are_not() -> None:
    fleet = VirtualLinks(8, ports=1)
    few = VirtualLinks(3, ports=1)
    for one in (fleet, few):
        for _ in range(4):
            one.fail(1, 0)
            one.pass_minutes(5)
    assert fleet.open == {"n1"}
    assert few.told == []


def test_a_port_that_cannot_tell_is_no_peer_and_what_was_found_is_held() -> None:
    fleet = VirtualLinks(4)
    fleet.blind = {(3, 3)}
    for _ in range(4):
        fleet.fail(1, 3)
        fleet.pass_minutes(5)
    assert fleet.told == [], "two peers are too few"
    fleet.blind = set()
    fleet.pass_minutes(3)
    assert fleet.open == {"n1"}
    fleet.blind = {(1, 3)}
    fleet.pass_minutes(60)
    assert fleet.open == {"n1"}
    fleet.silent = {1}
    fleet.pass_minutes(60)
    assert fleet.open == {"n1"}


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_in_a_healthy_fleet_nobody_is_named_and_planted_links_are(seed: int) -> None:
    """Days of many nodes: links retrain now and then, leaves flap, agents are restarted."""
    nodes, days = (128, 1) if seed < 2 else (512, 20)
    fleet = VirtualLinks(nodes, seed)
    for hour in range(24 * days):
        for _ in range(60):
            _noise(fleet)
            fleet.minute += 1
        if hour % 5 == 0:
            for _ in range(fleet.rng.integers(1, 5)):
                unit = int(fleet.rng.integers(nodes // fleet.unit))
                fleet.flap_leaf(unit, int(fleet.rng.integers(fleet.ports)))
                fleet.minute += 1
        if hour % 7 == 0:
            fleet.restart_agents(fleet.rng.integers(0, nodes, nodes // 12).tolist())
        fleet.pass_minutes(2)
    named = {one.node for one in fleet.told if one.finding is not None}
    # Three retrainings of one link in a day come once in 10,000 days of a link by chance.
    assert len(named) <= 1
    planted = sorted({int(one) for one in fleet.rng.integers(0, nodes, 3)} - {0})
    for _ in range(8):
        for node in planted:
            fleet.fail(node, 7)
            fleet.minute += 7  # at the same time they would have one cause
        fleet.pass_minutes(20, looks=3)
    fleet.pass_minutes(6)
    found = {f"n{node}" for node in planted} & fleet.open
    apart = [one for one in planted if sum(one // 8 == other // 8 for other in planted) == 1]
    assert {f"n{node}" for node in apart} <= found


def test_columns_that_do_not_fit_one_another_are_dropped() -> None:
    whole = pack_links([LinkRow("a/1", (1, 0, 0), (2, 0, 0), (2, 0, 0)), LinkRow("b/1")], 60)
    assert whole is not None
    errors = LinkErrors()
    errors.add("n", whole, 0)
    assert errors.of_nodes(["n", "m"], FRESH_NS)[0] is not None
    assert errors.of_nodes(["n", "m"], FRESH_NS + 1) == (None, None)
    for wrong in (
        replace(whole, recoveries=b"\xff"),
        replace(whole, losses=whole.losses + b"\0\0"),
        replace(whole, newest=b""),
        replace(whole, blind=b"\0"),
        replace(whole, ports=("a/1",)),
        replace(whole, ports=("a/1", "a/1")),
        replace(whole, ports=()),
    ):
        errors.add("n", whole, 0)
        errors.add("n", wrong, 0)
        assert errors.of_nodes(["n"], 0) == (None,)


def test_more_than_one_port_of_a_node_is_told_in_one_sentence() -> None:
    fleet = VirtualLinks(16)
    for _ in range(4):
        for port in (1, 2):
            fleet.fail(9, port)
        fleet.pass_minutes(5)
    fleet.fail(9, 2)
    fleet.pass_minutes(5)
    assert fleet.open == {"n9"}
    assert re.search(r"mlx5_[12]/1 has retrained in \d minutes", fleet.told[0].evidence)
    assert "; 1 more of its ports or counters" in fleet.told[0].evidence
