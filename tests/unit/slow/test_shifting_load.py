"""Moving work: who is not named, as others were as slow for some steps."""

import math

import numpy as np
import pytest

from everstep_controller.slow.episodes import Episodes, WorkerEpisode
from everstep_controller.slow.losses import Losses
from everstep_controller.slow.peers import Roster
from everstep_controller.slow.shifting_load import shifting_load


def _seen(steps: int = 40, factor: float = 1.1) -> Episodes:
    """Return 64 workers of two roles, of which one has been slow for so many steps."""
    roles = np.repeat(np.arange(2), 32)
    roster = Roster([str(one) for one in range(64)], roles, ["a", "b"])
    seen = Episodes(roster, Losses(roster))
    episode = WorkerEpisode(300, 310, worker=40, at=310)
    for _ in range(steps):
        episode.measure(math.log(factor))
    seen.add(episode)
    return seen


def _rose(seen: Episodes, workers: list[int], factor: float, at: int) -> Episodes:
    seen.rose[workers], seen.rose_at[workers] = math.log(factor), at
    return seen


def test_a_worker_that_is_slow_alone_is_named() -> None:
    assert shifting_load(_seen()) == {}


def test_three_others_that_were_as_slow_for_some_steps_make_it_moving_work() -> None:
    assert shifting_load(_rose(_seen(), [3, 9, 50], 1.06, 200)) == {40: 1}


@pytest.mark.parametrize(
    ("workers", "factor", "at"),
    [([3, 9], 1.06, 200), ([3, 9, 50], 1.04, 200), ([3, 9, 50], 1.06, 100)],
    ids=["two others", "others that were less slow", "others long before"],
)
def test_fewer_others_do_not(workers: list[int], factor: float, at: int) -> None:
    assert shifting_load(_rose(_seen(), workers, factor, at)) == {}


def test_who_is_slow_for_more_than_a_hundred_steps_is_named_all_the_same() -> None:
    assert shifting_load(_rose(_seen(steps=101), [3, 9, 50], 1.06, 200)) == {}
