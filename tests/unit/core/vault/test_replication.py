from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.core.nodes.watchers import watched_peers
from everstep_controller.core.vault.replication import (
    KEPT_MAX,
    Replication,
    plan_collectors,
    replica_targets,
)

_NODES = st.integers(0, 30).map(lambda n: f"n{n}")
DOMAINS = st.dictionaries(_NODES, st.sampled_from(["r1", "r2", "r3", ""]), min_size=2)
# Most nodes in one domain, wherever that comes in the order of domains.
LOPSIDED = st.builds(
    lambda most, most_in, others: (
        dict.fromkeys(most, most_in) | {f"x{n}": domain for n, domain in enumerate(others)}
    ),
    st.sets(_NODES, min_size=6),
    st.sampled_from(["r0", "r2", "r9"]),
    st.lists(st.sampled_from(["r1", "r3", ""]), min_size=1, max_size=5),
)


def _size(domain_of: dict[str, str]) -> int:
    return max(Counter(domain_of.values()).values())


@given(DOMAINS, st.data())
def test_every_member_has_another_one_as_its_target(
    domain_of: dict[str, str], data: st.DataObject
) -> None:
    short = data.draw(st.sets(st.sampled_from(sorted(domain_of))))
    targets = replica_targets(list(domain_of), domain_of, short)
    assert set(targets) == set(domain_of)
    assert set(targets.values()) <= set(domain_of)
    assert all(node != target for node, target in targets.items())


@given(DOMAINS)
def test_each_keeps_exactly_one_unless_one_domain_has_most_of_the_members(
    domain_of: dict[str, str],
) -> None:
    targets = replica_targets(list(domain_of), domain_of)
    size = _size(domain_of)
    if size * 2 <= len(domain_of) or size == len(domain_of):
        assert set(targets.values()) == set(domain_of)
    if size * 2 <= len(domain_of):
        assert all(domain_of[node] != domain_of[target] for node, target in targets.items())


def test_of_three_nodes_two_in_one_rack_the_third_keeps_both() -> None:
    domain_of = {"a": "rack-1", "b": "rack-1", "c": "rack-2"}
    assert replica_targets(["a", "b", "c"], domain_of) == {"a": "c", "b": "c", "c": "a"}


@given(LOPSIDED)
def test_a_domain_with_most_members_is_left_by_all_that_the_others_can_keep(
    domain_of: dict[str, str],
) -> None:
    targets = replica_targets(list(domain_of), domain_of)
    size = _size(domain_of)
    outside = len(domain_of) - size
    if outside >= size:
        return
    stay = [node for node, target in targets.items() if domain_of[node] == domain_of[target]]
    assert len(stay) == max(0, size - outside * KEPT_MAX)
    kept = Counter(targets.values())
    most = Counter(domain_of.values()).most_common(1)[0][0]
    shares = [kept[node] for node in domain_of if domain_of[node] != most]
    assert max(shares) <= KEPT_MAX
    assert max(shares) - min(shares) <= 1
    assert all(kept[node] <= 1 for node in domain_of if domain_of[node] == most)


@given(LOPSIDED, st.data())
def test_who_is_short_of_memory_keeps_one(domain_of: dict[str, str], data: st.DataObject) -> None:
    short = data.draw(st.sets(st.sampled_from(sorted(domain_of))))
    targets = replica_targets(list(domain_of), domain_of, short)
    kept = Counter(targets.values())
    assert all(kept[node] <= 1 for node in short)
    if short == set(domain_of):
        assert set(targets.values()) == set(domain_of)


@given(LOPSIDED)
def test_a_replacement_in_the_same_domain_and_place_changes_only_its_own(
    domain_of: dict[str, str],
) -> None:
    members = list(domain_of)
    before = replica_targets(members, domain_of)
    gone = members[0]
    members[0] = "spare"
    after = replica_targets(members, domain_of | {"spare": domain_of[gone]})
    renamed = {"spare" if node == gone else node: target for node, target in before.items()}
    assert after == {
        node: "spare" if target == gone else target for node, target in renamed.items()
    }


@given(LOPSIDED)
def test_who_leaves_the_large_domain_moves_few_others(domain_of: dict[str, str]) -> None:
    members = list(domain_of)
    outside = len(members) - _size(domain_of)
    if _size(domain_of) <= outside + 1 or outside * KEPT_MAX < _size(domain_of):
        return
    most = Counter(domain_of.values()).most_common(1)[0][0]
    gone = next(node for node in members if domain_of[node] == most)
    before = replica_targets(members, domain_of)
    after = replica_targets([node for node in members if node != gone], domain_of)
    moved = [node for node, target in after.items() if before[node] not in (target, gone)]
    # Of each share the one at its end, and what its keeper gives away in turn.
    assert len(moved) <= 2 * outside


def test_a_job_of_one_node_has_no_target() -> None:
    assert replica_targets(["a"], {}) == {}


def test_most_peers_are_of_the_same_domain() -> None:
    domain_of = {f"{domain}{n}": domain for domain in "abc" for n in range(8)}
    peers = watched_peers(list(domain_of), domain_of)
    same = [domain_of[peer] == domain_of[node] for node in peers for peer in peers[node]]
    assert len(same) == 3 * 24
    assert sum(same) == 2 * 24


def test_every_node_is_watched_from_its_domain_and_from_outside() -> None:
    domain_of = {f"{domain}{n}": domain for domain in "abc" for n in range(ord(domain) - 92)}
    watchers: dict[str, list[str]] = {node: [] for node in domain_of}
    for watcher, watched in watched_peers(list(domain_of), domain_of).items():
        for node in watched:
            watchers[node].append(domain_of[watcher])
    for node, domains in watchers.items():
        assert domain_of[node] in domains
        assert set(domains) - {domain_of[node]}


@given(DOMAINS)
def test_every_node_is_watched(domain_of: dict[str, str]) -> None:
    peers = watched_peers(list(domain_of), domain_of)
    assert {peer for watched in peers.values() for peer in watched} == set(domain_of)
    assert all(node not in watched for node, watched in peers.items())


def test_a_node_keeps_the_replicas_of_those_whose_target_it_is() -> None:
    domain_of = {"a": "large", "b": "large", "c": "small"}
    replication = Replication(replica_targets(list(domain_of), domain_of))
    assert replication.sources == {"c": ("a", "b"), "a": ("c",)}
    assert Replication().sources == {}


def test_each_member_but_the_first_tells_its_steps_to_one_before_it() -> None:
    members = [f"n{number:03}" for number in range(40)]
    collectors = plan_collectors(members)
    assert collectors.keys() == set(members[1:])
    assert all(collectors[member] < member for member in members[1:])
    assert plan_collectors(members[:1]) == {}
