"""Collective lateness: who comes last is nominated; chance and missing ranks nominate nobody."""

import numpy as np
import pytest
from slow.series import NAMES, collective_seconds

from everstep_controller.slow.collective_arrival.collective_lateness import CollectiveLateness, Late
from everstep_controller.slow.peers import Floats, Indices


def _groups(count: int, members: int) -> list[Indices]:
    return list(np.arange(count * members).reshape(count, members))


def _watched(seconds: Floats, groups: list[Indices], step_s: float = 1.0) -> Late:
    watch = CollectiveLateness(groups, seconds.shape[1])
    return [watch.observe(row, step_s) for row in seconds][-1]


def _arrivals(seed: int, steps: int = 40, workers: int = 32) -> Floats:
    """Return when each worker comes, in seconds after the step began."""
    drawn: Floats = np.random.default_rng(seed).normal(0.5, 0.02, (steps, workers))
    return drawn


def _collectives(arrivals: Floats, groups: list[Indices]) -> Floats:
    """Return how long each is in its group's collective, which takes 10 ms once all are there."""
    seconds = np.empty_like(arrivals)
    for members in groups:
        last = arrivals[:, members].max(axis=1, keepdims=True)
        seconds[:, members] = last - arrivals[:, members] + 0.01
    return seconds


def test_who_always_comes_last_is_nominated_with_how_long_the_next_one_waited() -> None:
    groups, arrivals = _groups(4, 8), _arrivals(1)
    arrivals[10:, 13] += 0.2
    late = _watched(_collectives(arrivals, groups), groups)
    assert np.flatnonzero(late.nominated).tolist() == [13]
    assert late.share[13] > 0.9
    assert late.gap_s[13] == pytest.approx(0.2 - 0.03, abs=0.03)


@pytest.mark.parametrize("members", [2, 4, 8, 32])
@pytest.mark.parametrize("seed", range(20))
def test_who_comes_last_by_chance_is_not(members: int, seed: int) -> None:
    groups = _groups(32 // members, members)
    assert not _watched(_collectives(_arrivals(seed), groups), groups).nominated.any()


def test_what_is_less_than_a_hundredth_of_the_step_is_nothing() -> None:
    groups, arrivals = _groups(4, 8), _arrivals(2)
    arrivals[:, 13] += 0.2
    seconds = _collectives(arrivals, groups)
    assert not _watched(seconds, groups, step_s=30.0).nominated.any()


def test_two_that_come_together_keep_nobody_alone_waiting() -> None:
    groups = _groups(1, 8)
    seconds = np.full((30, 8), 0.5)
    seconds[:, [2, 5]] = 0.1
    assert not _watched(seconds, groups).nominated.any()


def test_a_group_with_a_member_that_told_nothing_is_not_judged() -> None:
    groups, arrivals = _groups(2, 8), _arrivals(3, workers=16)
    arrivals[:, 3] += 0.2
    seconds = _collectives(arrivals, groups)
    seconds[:, 6] = np.nan
    assert not _watched(seconds, groups).nominated.any()


def test_workers_in_no_group_and_groups_of_one_are_never_late() -> None:
    seconds = np.full((30, 4), 0.5)
    late = _watched(seconds, [np.array([2])])
    assert not late.nominated.any()
    assert np.isnan(CollectiveLateness([np.array([2])], 4).waited_s(seconds[0])).all()


def test_a_worker_in_two_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="two of the groups"):
        CollectiveLateness([np.array([0, 1]), np.array([1, 2])], 3)


def test_waiting_is_what_a_collective_takes_longer_than_that_of_the_last_one() -> None:
    watch = CollectiveLateness([np.array([0, 1, 2])], 4)
    np.testing.assert_allclose(
        watch.waited_s(np.array([0.5, 0.1, 0.3, 9.0])), [0.4, 0.0, 0.2, np.nan]
    )


@pytest.mark.parametrize("name", NAMES)
def test_public_traces(name: str) -> None:
    """In AR the slow worker's replica comes last in all stages; in SE nobody does."""
    series = collective_seconds(name)
    roles = series.roster.roles
    groups = [np.flatnonzero(roles == role) for role in range(int(roles.max()) + 1)]
    watch = CollectiveLateness(groups, series.roster.size)
    named: set[str] = set()
    for row in series.seconds:
        late = watch.observe(row, 40.0).nominated
        named |= {series.roster.names[one] for one in np.flatnonzero(late).tolist()}
    assert named == ({"0-0", "1-0", "2-0", "3-0"} if name == "AR" else set())
