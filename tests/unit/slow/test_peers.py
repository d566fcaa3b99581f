"""Comparison with peers: medians of groups without their members, and middles of windows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from everstep_controller.slow.peers import Groups, Roster, middle_means, spread
from everstep_controller.slow.places import SlowPlace, SlowPlaces

_VALUES = st.lists(
    st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 5))), min_size=1, max_size=40
)


def _median(values: list[float]) -> float:
    known = [one for one in values if not np.isnan(one)]
    return float(np.median(known)) if known else float("nan")


@given(_VALUES)
def test_the_median_of_peers_is_that_of_the_group_without_the_member(
    rows: list[tuple[int, int | None]],
) -> None:
    groups = [group for group, _ in rows]
    values = [float("nan") if one is None else float(one) for _, one in rows]
    found = Groups(np.array(groups), 5).medians(np.array(values))
    for group in range(5):
        mine = [value for at, value in zip(groups, values, strict=True) if at == group]
        np.testing.assert_equal(found.of_group[group], _median(mine))
    for place, value in enumerate(values):
        others = [
            values[other]
            for other in range(len(values))
            if other != place and groups[other] == groups[place]
        ]
        if not np.isnan(value):
            np.testing.assert_equal(found.of_peers[place], _median(others))


@given(st.integers(1, 24), st.integers(0, 2**32 - 1))
def test_a_middle_leaves_out_the_highest_and_the_lowest_fifth(size: int, seed: int) -> None:
    window = np.random.default_rng(seed).normal(size=(size, 3))
    ordered, cut = np.sort(window, axis=0), size // 5
    np.testing.assert_allclose(middle_means(window, 1), ordered[cut : size - cut].mean(axis=0))


def test_a_middle_of_too_few_known_values_is_not_known() -> None:
    window = np.array([[1.0, 1.0], [2.0, np.nan], [3.0, np.nan]])
    np.testing.assert_equal(middle_means(window, 2), [2.0, np.nan])


def test_noise_of_a_large_role_is_its_own_and_that_of_small_roles_is_of_all() -> None:
    roles = np.array([0] * 16 + [1] * 2)
    values = np.array([0.0, 1.0] * 8 + [0.0, 100.0])
    noise = spread(values, Roster([str(one) for one in range(18)], roles, ["a", "b"]))
    assert np.unique(noise[:16]) == [0.5 * 1.4826]
    assert (noise[16:] > 0).all()


def test_a_place_of_which_nothing_is_known_any_more_is_not_held() -> None:
    place = SlowPlace("node", 0, np.arange(2), 0.3)
    before, now = SlowPlaces((place,)), SlowPlaces(())
    assert now.kept(before, np.array([0.3, np.nan, 0.0]), 0.015).found == (place,)
    assert now.kept(before, np.array([np.nan, np.nan, 0.0]), 0.015).found == ()
