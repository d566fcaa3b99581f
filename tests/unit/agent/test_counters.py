"""Counters with a memory: growth over restarts, resets, reboots, wraps and narrow registers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.detectors.readings.counters import (
    COUNTER_64,
    Counters,
    FlaggedWindows,
    Growth,
    RateWindow,
    Register,
)
from everstep_common.clock import Stamp

_SECOND_NS = 10**9
_PORT_XMIT_WAIT = Register(bits=16)
_ETHERNET_32 = Register(bits=32, wraps=True)


def _at(second: float, boot: str = "boot-1", booted_s: float = 0.0) -> Stamp:
    """Return a moment by the wall clock; the boot clock began ``booted_s`` later."""
    return Stamp(boot, int((second - booted_s) * _SECOND_NS), int(second * _SECOND_NS))


def _take(
    counters: Counters, *values: int, register: Register = COUNTER_64, every_s: float = 1.0
) -> list[Growth]:
    return [
        counters.take("c", value, _at(look * every_s), register)
        for look, value in enumerate(values)
    ]


def test_the_first_reading_is_no_growth() -> None:
    assert _take(Counters(), 17) == [Growth(0, 0.0)]


def test_growth_has_its_time_and_its_rate() -> None:
    *_, growth = _take(Counters(), 10, 10, 30, every_s=5.0)
    assert growth == Growth(20, 5.0)
    assert growth.per_second == 4.0
    assert Growth(3, 0.0).per_second == 0.0


def test_counters_are_counted_apart() -> None:
    counters = Counters()
    counters.take("a", 5, _at(0))
    counters.take("b", 50, _at(0))
    assert counters.take("a", 6, _at(1)).count == 1
    assert counters.take("b", 53, _at(1)).count == 3


def test_a_reset_counts_what_came_after_it() -> None:
    *_, growth = _take(Counters(), 1000, 7)
    assert growth == Growth(7, 1.0, reset=True)


@pytest.mark.parametrize(("bits", "largest"), [(4, 15), (8, 255), (16, 65_535)])
def test_a_narrow_register_that_is_full_can_tell_nothing_more(bits: int, largest: int) -> None:
    register = Register(bits=bits)
    growths = _take(Counters(), largest - 2, largest, largest, register=register)
    assert [(growth.count, growth.saturated) for growth in growths] == [
        (0, False), (2, True), (0, True),
    ]  # fmt: skip


def test_a_register_that_was_full_and_was_reset_counts_again() -> None:
    *_, growth = _take(Counters(), 65_535, 3, register=_PORT_XMIT_WAIT)
    assert growth == Growth(3, 1.0, reset=True)


def test_a_counter_that_wraps_goes_on() -> None:
    *_, growth = _take(Counters(), 2**32 - 10, 5, register=_ETHERNET_32)
    assert growth == Growth(15, 1.0)


def test_a_smaller_value_far_from_the_end_is_a_reset_even_where_it_wraps() -> None:
    *_, growth = _take(Counters(), 2**31, 5, register=_ETHERNET_32)
    assert growth == Growth(5, 1.0, reset=True)


def test_a_wrap_is_not_taken_over_a_reboot() -> None:
    counters = Counters()
    counters.take("c", 2**32 - 10, _at(100), _ETHERNET_32)
    growth = counters.take("c", 5, _at(200, "boot-2", booted_s=190), _ETHERNET_32)
    assert (growth.count, growth.reset) == (5, True)


def test_a_reboot_is_bridged_by_the_wall_clock() -> None:
    counters = Counters()
    counters.take("c", 100, _at(1000))
    growth = counters.take("c", 140, _at(1600, "boot-2", booted_s=1500))
    # A counter that outlives the boot (aggregate errors of a GPU) has grown; a volatile one that
    # is above its old value already cannot be told from it.
    assert growth == Growth(40, 600.0)


def test_a_wall_clock_that_was_set_back_gives_no_negative_time() -> None:
    counters = Counters()
    counters.take("c", 100, _at(1000))
    assert counters.take("c", 101, _at(400, "boot-2", booted_s=390)).seconds == 0.0


def test_a_wall_clock_that_is_set_changes_no_time_within_a_boot() -> None:
    counters = Counters()
    counters.take("c", 1, Stamp("boot-1", 10 * _SECOND_NS, 5_000 * _SECOND_NS))
    growth = counters.take("c", 2, Stamp("boot-1", 12 * _SECOND_NS, 1 * _SECOND_NS))
    assert growth == Growth(1, 2.0)


def test_the_next_agent_goes_on_where_this_one_ended() -> None:
    before = Counters()
    before.take("c", 100, _at(0))
    after = Counters(before.remembered())
    assert after.take("c", 160, _at(60)) == Growth(60, 60.0)
    # What was handed over is a copy: the two do not share their memory.
    assert before.take("c", 101, _at(61)).count == 1


def test_a_device_that_is_gone_is_forgotten_with_all_its_counters() -> None:
    counters = Counters()
    for name in ("gpu/a/x", "gpu/a/y", "gpu/b/x"):
        counters.take(name, 5, _at(0))
    counters.forget("gpu/a/")
    assert set(counters.remembered()) == {"gpu/b/x"}
    assert counters.take("gpu/a/x", 1, _at(1)) == Growth(0, 0.0)


@given(st.lists(st.integers(0, 2**30 - 1), max_size=50), st.integers(0, 2**32 - 1))
def test_wraps_lose_nothing_when_polled_often_enough(steps: list[int], start: int) -> None:
    # Often enough: less than a quarter of the register between two looks.
    counters, total, grown = Counters(), start, 0
    counters.take("c", start, _at(0), _ETHERNET_32)
    for second, step in enumerate(steps, start=1):
        total += step
        growth = counters.take("c", total % 2**32, _at(second), _ETHERNET_32)
        assert not growth.reset
        grown += growth.count
    assert grown == total - start


@given(st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=50))
def test_growth_is_never_more_than_the_truth(events: list[tuple[int, bool]]) -> None:
    counters, value, truth, grown = Counters(), 0, 0, 0
    counters.take("c", 0, _at(0))
    for second, (step, reset) in enumerate(events, start=1):
        # A reset between two looks hides what came before it, which can only be missing.
        value = step if reset else value + step
        truth += step
        growth = counters.take("c", value, _at(second))
        assert growth.count >= 0
        grown += growth.count
    assert grown <= truth


@given(st.lists(st.integers(0, 40), max_size=60), st.sampled_from([4, 8, 16]))
def test_a_saturating_register_counts_all_until_it_is_full(steps: list[int], bits: int) -> None:
    register, counters, value, grown = Register(bits=bits), Counters(), 0, 0
    counters.take("c", 0, _at(0), register)
    for second, step in enumerate(steps, start=1):
        value = min(register.largest, value + step)
        growth = counters.take("c", value, _at(second), register)
        grown += growth.count
        assert growth.saturated == (value == register.largest)
    assert grown == value


def test_a_rate_window_forgets_what_is_older_than_it() -> None:
    window = RateWindow(60 * _SECOND_NS)
    assert window.take(5, 0) == 5
    assert window.take(0, 59 * _SECOND_NS) == 5
    assert window.take(2, 60 * _SECOND_NS) == 2
    assert window.take(0, 10_000 * _SECOND_NS) == 0


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50)), max_size=60))
def test_a_rate_window_is_the_sum_of_what_it_holds(events: list[tuple[int, int]]) -> None:
    window, now, seen = RateWindow(100), 0, list[tuple[int, int]]()
    for count, later in events:
        now += later
        seen.append((now, count))
        assert window.take(count, now) == sum(n for at, n in seen if at > now - 100)


def test_flagged_windows_count_the_newest_looks_only() -> None:
    windows = FlaggedWindows(3, flagged=[True, True, True, True])
    assert [windows.take(flag) for flag in (True, False, False, False, True)] == [3, 2, 1, 0, 1]
