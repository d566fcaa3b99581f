"""Who has a place at the bulk port, and who gives it up for a newer connection."""

from everstep_agent.vault.replication.connection_limits import (
    CONNECTIONS_MAX,
    UNPROVEN_MAX,
    UNPROVEN_OF_HOST_MAX,
    UNPROVEN_OF_PROVEN_HOST_MAX,
    ConnectionLimits,
)


def _filled(host: str, count: int) -> ConnectionLimits[str]:
    """Return limits with so many connections of a host that say nothing."""
    limits: ConnectionLimits[str] = ConnectionLimits()
    for number in range(count):
        limits.admit_unproven(f"silent {number}", host)
    return limits


def test_the_oldest_of_a_host_goes_for_its_newest() -> None:
    limits = _filled("peer", UNPROVEN_OF_HOST_MAX)
    assert limits.admit_unproven("replica", "peer") == "silent 0"
    assert limits.admit_unproven("another", "peer") == "silent 1"
    assert limits.evicted == 2
    # It has its place until it has proven a key, or as many newer ones have come.
    assert limits.release_unproven("replica")
    assert not limits.release_unproven("replica")
    assert not limits.release_unproven("silent 0")


def test_one_host_takes_no_place_of_another() -> None:
    limits = _filled("hostile", 10 * UNPROVEN_OF_HOST_MAX)
    assert limits.unproven == UNPROVEN_OF_HOST_MAX
    assert limits.admit_unproven("replica", "peer") is None
    assert limits.admit_proven()


def test_a_host_that_has_proven_a_key_has_more_places() -> None:
    limits = _filled("peer", 0)
    limits.note_proof("peer")
    for number in range(UNPROVEN_OF_PROVEN_HOST_MAX):
        assert limits.admit_unproven(f"replica {number}", "peer") is None
    assert limits.admit_unproven("one more", "peer") == "replica 0"


def test_strangers_give_up_their_places_before_a_host_that_has_proven_a_key() -> None:
    limits = _filled("peer", 1)
    limits.note_proof("peer")
    for number in range(UNPROVEN_MAX - 1):
        assert limits.admit_unproven(f"stranger {number}", f"host {number}") is None
    # The connection of the peer is the oldest of all.
    assert limits.admit_unproven("stranger", "yet another host") == "stranger 0"
    assert limits.admit_unproven("replica", "peer") == "stranger 1"


def test_where_all_hosts_have_proven_a_key_the_oldest_of_all_goes() -> None:
    limits: ConnectionLimits[int] = ConnectionLimits()
    for number in range(UNPROVEN_MAX):
        limits.note_proof(f"host {number}")
        limits.admit_unproven(number, f"host {number}")
    assert limits.admit_unproven(-1, "host 7") == 0


def test_places_of_proven_connections_are_limited_and_come_back() -> None:
    limits = _filled("peer", 0)
    assert all(limits.admit_proven() for _ in range(CONNECTIONS_MAX))
    assert not limits.admit_proven()
    limits.release_proven()
    assert limits.admit_proven()
