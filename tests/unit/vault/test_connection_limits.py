"""Who has a place at the bulk port, and who gives it up for a newer connection."""

from everstep_agent.vault.replication.connection_limits import (
    CONNECTIONS_MAX,
    KNOWN_HOST_WORK,
    STRANGERS_WORK,
    UNPROVEN_MAX,
    UNPROVEN_OF_HOST_MAX,
    UNPROVEN_OF_KNOWN_HOST_MAX,
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
    limits.note_known("peer", 0.0)
    for number in range(UNPROVEN_OF_KNOWN_HOST_MAX):
        assert limits.admit_unproven(f"replica {number}", "peer") is None
    assert limits.admit_unproven("one more", "peer") == "replica 0"


def test_strangers_give_up_their_places_before_a_host_that_has_proven_a_key() -> None:
    limits = _filled("peer", 1)
    limits.note_known("peer", 0.0)
    for number in range(UNPROVEN_MAX - 1):
        assert limits.admit_unproven(f"stranger {number}", f"host {number}") is None
    # The connection of the peer is the oldest of all.
    assert limits.admit_unproven("stranger", "yet another host") == "stranger 0"
    assert limits.admit_unproven("replica", "peer") == "stranger 1"


def test_where_all_hosts_have_proven_a_key_the_oldest_of_all_goes() -> None:
    limits: ConnectionLimits[int] = ConnectionLimits()
    for number in range(UNPROVEN_MAX):
        limits.note_known(f"host {number}", 0.0)
        limits.admit_unproven(number, f"host {number}")
    assert limits.admit_unproven(-1, "host 7") == 0


def test_places_of_proven_connections_are_limited_and_come_back() -> None:
    limits = _filled("peer", 0)
    assert all(limits.admit_proven() for _ in range(CONNECTIONS_MAX))
    assert not limits.admit_proven()
    limits.release_proven()
    assert limits.admit_proven()


def _spent(limits: ConnectionLimits[str], host: str, now_s: float = 0.0) -> int:
    """Spend a host's share of the loop a millisecond at a time; return how often it had some."""
    begun = 0
    while limits.begin_work(host, 0.001, now_s):
        begun += 1
    return begun


def test_strangers_spend_one_share_of_the_loop_together_and_none_of_a_peers() -> None:
    limits = _filled("peer", 0)
    limits.note_known("peer", 0.0)
    assert _spent(limits, "stranger") >= STRANGERS_WORK.burst * 1000
    assert not limits.begin_work("another stranger", 0.001, 0.0)
    assert limits.begin_work("peer", 0.001, 0.0)
    # A second later they have their share of that second again.
    assert _spent(limits, "stranger", 1.0) <= STRANGERS_WORK.per_s * 1000 + 1


def test_a_user_of_one_peers_machine_spends_nothing_of_another_peers_share() -> None:
    limits = _filled("peer", 0)
    for host in ("peer", "another"):
        limits.note_known(host, 0.0)
    assert _spent(limits, "another") >= KNOWN_HOST_WORK.burst * 1000
    assert limits.begin_work("peer", 0.001, 0.0)
    assert limits.begin_work("stranger", 0.001, 0.0)


def test_an_agent_that_proves_a_key_spends_nothing() -> None:
    limits = _filled("peer", 0)
    for _ in range(10_000):
        assert limits.begin_work("peer", 0.001, 0.0)
        limits.give_back_work("peer", 0.001, 0.0)
