"""The rate limit: no second of the future sees more bytes than it may, and nobody is starved."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault.transfer.rate_limit import RateLimiter, TokenBucket

SECOND_NS = 1_000_000_000


def _sent(rate: int, pieces: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (when it goes, bytes) for pieces that are asked for after pauses."""
    bucket, now, sent = TokenBucket(rate, 0), 0, []
    for pause_ns, count in pieces:
        now += pause_ns
        sent.append((now + bucket.reserve(count, now), count))
    return sent


@given(
    st.integers(1_000, 10**9),
    st.lists(st.tuples(st.integers(0, SECOND_NS), st.integers(1, 10**6)), min_size=1, max_size=50),
)
def test_all_together_never_exceed_the_rate_and_a_short_burst(
    rate: int, pieces: list[tuple[int, int]]
) -> None:
    sent = _sent(rate, pieces)
    for first, (begin, _) in enumerate(sent):
        within = sum(count for at, count in sent[first + 1 :] if at <= begin + SECOND_NS)
        assert within <= rate * 1.1 + 1


def test_a_piece_after_a_pause_goes_at_once_and_the_next_waits() -> None:
    bucket = TokenBucket(1_000, 0)
    assert bucket.reserve(100, 5 * SECOND_NS) == 0
    assert bucket.reserve(500, 5 * SECOND_NS) == SECOND_NS // 2


def test_streams_that_ask_at_the_same_time_share_the_rate() -> None:
    bucket = TokenBucket(1_000, 0)
    waits = [bucket.reserve(100, SECOND_NS) for _ in range(11)]
    assert waits == [SECOND_NS // 10 * turn for turn in range(11)]


def test_pieces_are_small_enough_for_many_slow_streams() -> None:
    assert RateLimiter(0, lambda: 0).piece_bytes == 0
    assert RateLimiter(64 * 1024 * 1024, lambda: 0).piece_bytes == 1024 * 1024
    assert RateLimiter(1, lambda: 0).piece_bytes == 16 * 1024


def test_without_a_limit_nothing_is_waited_for() -> None:
    def clock() -> int:
        raise AssertionError("no limit, no clock")

    RateLimiter(0, clock).wait_for(1 << 40)
