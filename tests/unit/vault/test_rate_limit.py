"""Pieces in which the threads that send ask for their share of the rate."""

from everstep_agent.vault.transfer.rate_limit import RateLimiter


def test_pieces_are_small_enough_for_many_slow_streams() -> None:
    assert RateLimiter(0, lambda: 0).piece_bytes == 0
    assert RateLimiter(64 * 1024 * 1024, lambda: 0).piece_bytes == 1024 * 1024
    assert RateLimiter(1, lambda: 0).piece_bytes == 16 * 1024


def test_without_a_limit_nothing_is_waited_for() -> None:
    def clock() -> int:
        raise AssertionError("no limit, no clock")

    RateLimiter(0, clock).wait_for(1 << 40)
