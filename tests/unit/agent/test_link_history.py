"""Drops, flaps and bounces in virtual time: when they are told, and what ends them."""

import itertools

from everstep_agent.detectors.links.history import LinkHistory
from unit.agent.link_time import Timeline


def _look(history: LinkHistory, time: Timeline, up: bool | None, seconds: int) -> list[str]:
    """Look every second for so long, and return what was told."""
    told = [time.take(history.judge_state("mlx5_0/1", up, time.now)) for _ in range(seconds)]
    return list(itertools.chain(*told))


def test_a_link_that_is_down_for_four_minutes_has_dropped_and_is_kept_for_ten_more() -> None:
    history, time = LinkHistory(), Timeline()
    assert _look(history, time, True, 60) == []
    assert _look(history, time, False, 240) == []
    assert _look(history, time, False, 2) == ["+LinkDropped"]
    assert _look(history, time, True, 599) == []
    assert _look(history, time, True, 3) == ["-LinkDropped"]


def test_a_link_that_returns_within_four_minutes_has_not_dropped() -> None:
    history, time = LinkHistory(), Timeline()
    for _ in range(10):
        assert "+LinkDropped" not in _look(history, time, False, 230)
        assert "+LinkDropped" not in _look(history, time, True, 30)


def test_three_returns_after_25_seconds_are_flapping_for_an_hour() -> None:
    history, time = LinkHistory(), Timeline()
    told = _look(history, time, True, 10)
    for _ in range(3):
        # An hour lies between them, so that it is not the losses in an hour that tell.
        told += _look(history, time, False, 26)
        told += _look(history, time, True, 3500)
    assert told == ["+LinkFlapping"]
    assert _look(history, time, True, 120) == ["-LinkFlapping"]


def test_three_losses_in_an_hour_are_flapping_however_short() -> None:
    history, time = LinkHistory(), Timeline()
    told = _look(history, time, True, 10)
    for _ in range(3):
        told += _look(history, time, False, 1) + _look(history, time, True, 60)
    assert told == ["+LinkFlapping"]


def test_two_losses_in_an_hour_are_none() -> None:
    history, time = LinkHistory(), Timeline()
    told = _look(history, time, True, 10)
    for _ in range(5):
        told += _look(history, time, False, 1) + _look(history, time, True, 1900)
    assert told == []


def test_a_loss_between_two_looks_is_told_by_the_counter_and_ends_in_ten_minutes() -> None:
    history, time = LinkHistory(), Timeline()
    _look(history, time, True, 5)
    assert time.take(history.lost("mlx5_0/1", 0, time.now)) == []
    assert time.take(history.lost("mlx5_0/1", 1, time.now)) == ["+LinkBounced"]
    told: list[str] = []
    while time.seconds < 610:
        told += time.take(history.lost("mlx5_0/1", 0, time.now), seconds=5)
    assert told == ["-LinkBounced"]


def test_a_loss_that_a_look_saw_is_not_told_again_by_the_counter() -> None:
    history, time = LinkHistory(), Timeline()
    _look(history, time, True, 5)
    _look(history, time, False, 3)
    assert time.take(history.lost("mlx5_0/1", 1, time.now)) == []


def test_losses_that_only_the_counter_saw_are_flapping_as_well() -> None:
    history, time = LinkHistory(), Timeline()
    _look(history, time, True, 5)
    time.take(history.lost("mlx5_0/1", 4, time.now))
    assert _look(history, time, True, 1) == ["+LinkFlapping"]


def test_a_state_that_cannot_be_read_changes_nothing() -> None:
    history, time = LinkHistory(), Timeline()
    _look(history, time, True, 5)
    assert _look(history, time, None, 1000) == []
    assert _look(history, time, True, 5) == []
