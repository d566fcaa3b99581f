"""Connections that have proven nothing keep out neither those of other hosts nor proven ones."""

from everstep_agent.vault.replication.server import (
    CONNECTIONS_MAX,
    UNPROVEN_MAX,
    UNPROVEN_OF_HOST_MAX,
    ConnectionLimits,
)


def test_one_host_cannot_keep_another_one_out() -> None:
    door = ConnectionLimits()
    assert all(door.enter("hostile") for _ in range(UNPROVEN_OF_HOST_MAX))
    assert not door.enter("hostile")
    assert door.enter("peer")
    assert door.admit()


def test_who_has_left_makes_room() -> None:
    door = ConnectionLimits()
    for _ in range(3):
        assert all(door.enter("peer") for _ in range(UNPROVEN_OF_HOST_MAX))
        assert not door.enter("peer")
        for _ in range(UNPROVEN_OF_HOST_MAX):
            door.leave("peer")
    assert all(door.admit() for _ in range(CONNECTIONS_MAX))
    assert not door.admit()
    door.dismiss()
    assert door.admit()


def test_many_hosts_together_have_a_limit_as_well() -> None:
    door = ConnectionLimits()
    assert all(door.enter(f"host-{number}") for number in range(UNPROVEN_MAX))
    assert not door.enter("one-more")
