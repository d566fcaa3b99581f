from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.replica_ring import replica_targets, watched_peers

DOMAINS = st.dictionaries(
    st.integers(0, 30).map(lambda n: f"n{n}"), st.sampled_from(["r1", "r2", "r3", ""]), min_size=2
)


@given(DOMAINS)
def test_every_member_is_the_target_of_exactly_one_other(domain_of: dict[str, str]) -> None:
    targets = replica_targets(list(domain_of), domain_of)
    assert set(targets) == set(targets.values()) == set(domain_of)
    assert all(node != target for node, target in targets.items())


@given(DOMAINS)
def test_replicas_leave_their_domain_unless_it_has_most_of_the_members(
    domain_of: dict[str, str],
) -> None:
    targets = replica_targets(list(domain_of), domain_of)
    largest = max(list(domain_of.values()).count(d) for d in domain_of.values())
    if largest * 2 <= len(domain_of):
        assert all(domain_of[node] != domain_of[target] for node, target in targets.items())


def test_a_job_of_one_node_has_no_target() -> None:
    assert replica_targets(["a"], {}) == {}


def test_most_peers_are_of_the_same_domain() -> None:
    domain_of = {f"{domain}{n}": domain for domain in "abc" for n in range(8)}
    peers = watched_peers(list(domain_of), domain_of)
    same = [domain_of[peer] == domain_of[node] for node in peers for peer in peers[node]]
    assert len(same) == 3 * 24
    assert sum(same) == 3 * 18


@given(DOMAINS)
def test_every_node_is_watched(domain_of: dict[str, str]) -> None:
    peers = watched_peers(list(domain_of), domain_of)
    assert {peer for watched in peers.values() for peer in watched} == set(domain_of)
    assert all(node not in watched for node, watched in peers.items())
