"""Token bucket: no second of the future sees more than the rate allows, and nobody is starved."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.quotas.token_bucket import Rate, TokenBucket

_BURST_S = 0.1


def _bucket(per_s: float) -> TokenBucket:
    return TokenBucket(Rate(per_s, per_s * _BURST_S), 0.0)


def _sent(rate: int, pieces: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return (when it goes, bytes) for pieces that are asked for after pauses."""
    bucket, now_s, sent = _bucket(rate), 0.0, []
    for pause_s, count in pieces:
        now_s += pause_s
        sent.append((now_s + bucket.overdraw(now_s, count), count))
    return sent


@given(
    st.integers(1_000, 10**9),
    st.lists(st.tuples(st.floats(0, 1), st.integers(1, 10**6)), min_size=1, max_size=50),
)
def test_all_together_never_exceed_the_rate_and_a_short_burst(
    rate: int, pieces: list[tuple[float, int]]
) -> None:
    sent = _sent(rate, pieces)
    for first, (begin_s, _) in enumerate(sent):
        within = sum(count for at_s, count in sent[first + 1 :] if at_s <= begin_s + 1.0)
        assert within <= rate * 1.1 + 1


def test_a_piece_after_a_pause_goes_at_once_and_the_next_waits() -> None:
    bucket = _bucket(1_000)
    assert bucket.overdraw(5.0, 100) == 0
    assert bucket.overdraw(5.0, 500) == 0.5


def test_streams_that_ask_at_the_same_time_share_the_rate() -> None:
    bucket = _bucket(1_000)
    waits = [bucket.overdraw(1.0, 100) for _ in range(11)]
    assert waits == pytest.approx([0.1 * turn for turn in range(11)])


def test_what_is_given_back_is_left_again() -> None:
    bucket = TokenBucket(Rate(per_s=1.0, burst=1), 0.0)
    assert bucket.spend_one(0.0)
    assert not bucket.spend_one(0.0)
    bucket.overdraw(0.0, -1.0)
    assert bucket.is_full(0.0)
    assert bucket.spend_one(0.0)
