"""Who takes part in a generation, and in which order."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everstep_controller.core.recovery.placement import (
    SUSPECT,
    Candidate,
    Placement,
    natural,
    place_nodes,
)


def _nodes(*names: str, domain: str = "", distrust: int = 0) -> list[Candidate]:
    return [Candidate(name, domain, distrust) for name in names]


def _place(
    members: Sequence[str], able: Sequence[Candidate], most: int, **domains: str
) -> Placement:
    known = {one.name: one.domain for one in able}
    return place_nodes(members, known | domains, able, most)


def test_numbers_in_names_are_numbers() -> None:
    assert sorted(["n10", "n9", "a", "n9b", "10"], key=natural) == ["10", "a", "n9", "n9b", "n10"]


def test_the_first_plan_keeps_a_domain_together() -> None:
    able = _nodes("n1", "n4", "n2", domain="leaf-2") + _nodes("n3", "n10", "n5", domain="leaf-1")
    assert _place([], able, 6).places == ["n3", "n5", "n10", "n1", "n2", "n4"]


def test_the_first_plan_leaves_small_domains_to_spares() -> None:
    able = _nodes("a1", domain="a") + _nodes("b1", "b2", domain="b") + _nodes("c1", domain="c")
    assert _place([], able, 3).places == ["a1", "b1", "b2"]


def test_a_healthy_node_is_taken_before_a_doubtful_one() -> None:
    able = _nodes("n1", distrust=SUSPECT) + _nodes("n2", distrust=1) + _nodes("n3")
    assert _place([], able, 2).places == ["n2", "n3"]


def test_the_spare_takes_the_place_and_the_others_keep_theirs() -> None:
    placed = _place(["n1", "n2", "n3"], _nodes("n1", "n3", "n4"), 3)
    assert (placed.places, placed.replaced) == (["n1", "n4", "n3"], {"n2": "n4"})


@pytest.mark.parametrize(
    ("domain", "spare"),
    [("pod-1/leaf-2", "near"), ("pod-1/leaf-3", "same-pod"), ("pod-9/leaf-1", "anywhere")],
)
def test_the_nearest_spare_is_taken(domain: str, spare: str) -> None:
    able = [
        Candidate("anywhere", "", 0),
        Candidate("near", "pod-1/leaf-2", 1),
        Candidate("same-pod", "pod-1/leaf-1", 0),
    ]
    assert _place(["gone"], able, 1, gone=domain).places == [spare]


def test_a_near_spare_that_is_suspect_is_taken_after_a_trusted_one_far_away() -> None:
    able = [
        Candidate("a1", "rack-1", 0),
        Candidate("a2", "rack-1", SUSPECT),
        Candidate("b1", "rack-2", 0),
    ]
    placed = place_nodes(["a1", "a0"], {"a0": "rack-1", "a1": "rack-1"}, able, 2)
    assert placed.places == ["a1", "b1"]
    placed = place_nodes(["a1", "a0"], {"a0": "rack-1", "a1": "rack-1"}, able[:2], 2)
    assert placed.places == ["a1", "a2"]


def test_without_a_spare_a_place_stays_empty() -> None:
    placed = _place(["n1", "n2", "n3"], _nodes("n1", "n3"), 3)
    assert (placed.places, placed.empty) == (["n1", "n3"], 1)


def test_a_job_grows_beside_the_neighbours_of_the_new_node() -> None:
    able = _nodes("a1", "a2", domain="a") + _nodes("b1", "b2", domain="b")
    assert _place(["a1", "b1"], able, 4).places == ["a1", "a2", "b1", "b2"]


def test_ranks_do_not_meet_on_a_suspect_node() -> None:
    able = _nodes("n1", distrust=SUSPECT) + _nodes("n2", distrust=1) + _nodes("n3", "n4")
    assert _place(["n1", "n2", "n3", "n4"], able, 4).places == ["n3", "n2", "n1", "n4"]


def test_all_suspects_keep_their_places() -> None:
    able = _nodes("n1", "n2", distrust=SUSPECT)
    assert _place(["n1", "n2"], able, 2).places == ["n1", "n2"]


_NAMES = [f"n{number}" for number in range(12)]
_DOMAINS = st.sampled_from(["", "p1/l1", "p1/l2", "p2/l1", "p2"])


@settings(max_examples=300, deadline=None)
@given(
    members=st.lists(st.sampled_from(_NAMES), unique=True, max_size=8),
    able=st.dictionaries(st.sampled_from(_NAMES), st.tuples(_DOMAINS, st.integers(0, 2))),
    most=st.integers(1, 10),
)
def test_nobody_is_seated_twice_and_nobody_able_is_left_out(
    members: list[str], able: dict[str, tuple[str, int]], most: int
) -> None:
    most = max(most, len(members))
    nodes = [Candidate(name, *facts) for name, facts in able.items()]
    placed = _place(members, nodes, most)
    assert len(set(placed.places)) == len(placed.places) == min(most, len(able))
    assert set(placed.places) <= set(able)
    # Whoever could stay stays in the job.
    assert {name for name in members if name in able} <= set(placed.places)
    assert placed == _place(members, nodes[::-1], most)
