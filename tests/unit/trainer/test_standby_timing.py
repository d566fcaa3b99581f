"""When warm standbys are made."""

from everstep.launch.standby.schedules import Timing


def test_nothing_is_due_before_anything_happened() -> None:
    timing = Timing()
    assert timing.due_in_s(5.0) is None
    assert not timing.take(5.0)


def test_an_idle_launcher_makes_them_soon_and_once() -> None:
    timing = Timing()
    timing.idle(10.0)
    assert not timing.take(10.5)
    assert timing.due_in_s(10.5) == 0.5
    assert timing.take(11.0)
    assert not timing.take(12.0)


def test_a_start_puts_it_off_until_the_ranks_have_settled() -> None:
    timing = Timing()
    timing.idle(10.0)
    timing.started(10.2)
    assert not timing.take(30.0)
    timing.settled(30.0)
    assert timing.take(30.0)


def test_ranks_that_tell_nothing_are_given_a_minute() -> None:
    timing = Timing()
    timing.started(0.0)
    assert (timing.take(59.9), timing.take(60.0)) == (False, True)


def test_a_launcher_that_ends_makes_none() -> None:
    timing = Timing()
    timing.idle(0.0)
    timing.never()
    assert not timing.take(100.0)
