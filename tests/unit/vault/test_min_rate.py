"""The least rate of a transfer, in virtual time."""

import pytest

from everstep_agent.vault.transfer.min_rate import MinRate, MinRateWindow, SlowSourceError

_SECOND = 1_000_000_000


def test_a_byte_a_second_is_too_little_after_one_window() -> None:
    window = MinRateWindow(1000, 5 * _SECOND, 0)
    said = [window.count_bytes(1, second * _SECOND) for second in range(1, 6)]
    assert said == [True, True, True, True, False]


def test_what_comes_at_the_least_rate_comes_for_ever() -> None:
    window = MinRateWindow(1000, 5 * _SECOND, 0)
    assert all(window.count_bytes(1000, second * _SECOND) for second in range(1, 3600))


def test_a_burst_is_no_credit_for_later_windows() -> None:
    window = MinRateWindow(1000, 5 * _SECOND, 0)
    assert window.count_bytes(1 << 30, 5 * _SECOND)
    assert not window.count_bytes(1, 11 * _SECOND)


def test_streams_of_one_transfer_count_together() -> None:
    now = [0]
    watch = MinRate(1000, 5 * _SECOND, lambda: now[0]).start_watch()
    for second in range(1, 20):
        now[0] = second * _SECOND
        watch.count_bytes(1)
        watch.count_bytes(2000)
    now[0] += 60 * _SECOND
    with pytest.raises(SlowSourceError, match="less than 1000 bytes/s"):
        watch.count_bytes(1)
