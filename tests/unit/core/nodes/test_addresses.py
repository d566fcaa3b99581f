"""Addresses for copies that only their own machine reaches, in a fleet of several machines."""

from dataclasses import replace

import pytest

from everstep_controller.core import events
from everstep_controller.core.nodes import addresses
from unit.core.test_decisions import Story


def _fleet(**told: tuple[str, str]) -> Story:
    """Return a fleet whose agents tell an address for copies, and the boot of their machine."""
    story = Story(nodes=0)
    for node, (address, boot) in told.items():
        story.tell(
            events.NodeConnected(
                node=node,
                boot_id=boot,
                agent_version="0.1.0",
                outbox=f"{node}-box",
                highest_term=0,
                host=node,
                bulk_address=address,
            )
        )
    return story


def _said(story: Story) -> list[str]:
    found = (one.finding for one in addresses.findings(story.core.state))
    return [f"{one.message}; {one.evidence}; {one.rule}" for one in found]


@pytest.mark.parametrize("address", ["127.0.0.1:7436", "127.8.0.3:1", "[::1]:7436", "localhost:1"])
def test_loopback_is_a_finding_with_the_option_to_set(address: str) -> None:
    (said,) = _said(_fleet(a=(address, "1"), b=("10.0.0.2:7436", "2")))
    assert "nodes on other machines cannot reach the copies on a (1 of 2 nodes)" in said
    assert f"told to others: {address}" in said
    assert "in agent.toml of a set 'jobs.bulk_host'" in said


def test_an_agent_that_keeps_its_loopback_to_itself_is_one_too() -> None:
    (said,) = _said(_fleet(a=("", "1"), b=("10.0.0.2:7436", "2")))
    assert "told to others: no address" in said


def test_many_are_one_finding() -> None:
    told = {f"n{number}": ("127.0.0.1:7436", str(number)) for number in range(500)}
    (said,) = _said(_fleet(**told))
    assert "n0, n1, n2, n3 and 496 more (500 of 500 nodes)" in said


def test_on_one_machine_loopback_is_right() -> None:
    assert not _said(_fleet(a=("127.0.0.1:1", "1"), b=("127.0.0.1:2", "1")))


def test_a_single_node_needs_no_peer() -> None:
    assert not _said(_fleet(a=("127.0.0.1:1", "1")))


@pytest.mark.parametrize("address", ["10.0.0.1:7436", "gpu-1:7436", "[fd00::1]:7436"])
def test_addresses_of_a_network_are_none(address: str) -> None:
    assert not _said(_fleet(a=(address, "1"), b=("10.0.0.2:7436", "2")))


def test_it_is_over_when_the_agent_tells_another_address_or_is_away() -> None:
    story = _fleet(a=("127.0.0.1:1", "1"), b=("10.0.0.2:7436", "2"))
    story.tell(events.NodeDisconnected("a"))
    assert not _said(story)


def test_jobs_with_ranks_there_and_elsewhere_are_named() -> None:
    story = Story(nodes=3)
    story.run()
    nodes = story.core.state.nodes
    nodes["n0"].spec = replace(nodes["n0"].spec, bulk_address="127.0.0.1:7436", boot_id="another")
    (said,) = _said(story)
    assert "; j has ranks there" in said
