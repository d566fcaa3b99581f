"""Stalls of the controller's loop: what is one, and which of a row are forgiven."""

from everstep_controller.runtime.stalls import (
    BEAT_NS,
    CALM_NS,
    FORGIVEN_MAX,
    LATE_NS,
    Absence,
    StallWatch,
)

_S = 1_000_000_000


def _turn_until(watch: StallWatch, now_ns: int, end_ns: int) -> None:
    """Have the loop turn as often as it should."""
    for at_ns in range(now_ns + BEAT_NS, end_ns + 1, BEAT_NS):
        assert watch.turned(at_ns) is None


def test_a_loop_that_turns_in_time_has_no_stall() -> None:
    watch = StallWatch(0)
    _turn_until(watch, 0, 60 * _S)
    assert watch.turned(60 * _S + BEAT_NS + LATE_NS) is None
    assert watch.count == 0


def test_a_loop_that_stood_still_was_away_since_it_turned_last() -> None:
    watch = StallWatch(0)
    _turn_until(watch, 0, 10 * _S)
    assert watch.turned(30 * _S) == Absence(10 * _S, 30 * _S)
    assert watch.turned(30 * _S) is None


def test_three_stalls_in_a_row_are_forgiven_and_others_once_it_was_calm() -> None:
    watch, now_ns, forgiven = StallWatch(0), 0, list[bool]()
    for _ in range(FORGIVEN_MAX + 2):
        now_ns += 5 * _S
        assert watch.turned(now_ns) is not None
        forgiven.append(watch.forgiving)
    assert forgiven == [True] * FORGIVEN_MAX + [False, False]
    assert watch.count == FORGIVEN_MAX + 2
    _turn_until(watch, now_ns, now_ns + CALM_NS)
    assert watch.turned(now_ns + CALM_NS + 5 * _S) is not None
    assert watch.forgiving


def test_what_came_due_in_an_absence_has_its_remaining_time_again() -> None:
    absence = Absence(100 * _S, 160 * _S)
    assert absence.postponed_ns(103 * _S) == 163 * _S
    assert absence.postponed_ns(160 * _S) == 220 * _S
    for outside_ns in (99 * _S, 100 * _S, 161 * _S):
        assert absence.postponed_ns(outside_ns) == outside_ns
