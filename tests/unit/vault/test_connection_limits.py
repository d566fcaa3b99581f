"""Connections that have proven nothing keep out neither those of other hosts nor proven ones."""

from everstep_agent.vault.replication.server import (
    CONNECTIONS_MAX,
    UNPROVEN_MAX,
    UNPROVEN_OF_HOST_MAX,
    ConnectionLimits,
)


def test_one_host_cannot_keep_another_one_out() -> None:
    door = ConnectionLimits()
    assert all(door.admit_unproven("hostile") for _ in range(UNPROVEN_OF_HOST_MAX))
    assert not door.admit_unproven("hostile")
    assert door.admit_unproven("peer")
    assert door.admit_proven()


def test_who_has_left_makes_room() -> None:
    door = ConnectionLimits()
    for _ in range(3):
        assert all(door.admit_unproven("peer") for _ in range(UNPROVEN_OF_HOST_MAX))
        assert not door.admit_unproven("peer")
        for _ in range(UNPROVEN_OF_HOST_MAX):
            door.release_unproven("peer")
    assert all(door.admit_proven() for _ in range(CONNECTIONS_MAX))
    assert not door.admit_proven()
    door.release_proven()
    assert door.admit_proven()


def test_many_hosts_together_have_a_limit_as_well() -> None:
    door = ConnectionLimits()
    assert all(door.admit_unproven(f"host-{number}") for number in range(UNPROVEN_MAX))
    assert not door.admit_unproven("one-more")
