"""Stripes: every byte of a copy travels once, whoever carries it and whatever was there before."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault.transfer.engine import StripeQueue
from everstep_agent.vault.transfer.stripes import (
    STRIPE_BYTES,
    Stripe,
    cut_stripes,
    missing_stripes,
    streams_for,
    stripe_bitmap,
    useful_streams,
)

SIZES = st.integers(1, 40 * STRIPE_BYTES)


@given(SIZES)
def test_the_stripes_of_a_copy_cover_it_without_gap_or_overlap(size: int) -> None:
    at = 0
    for index, stripe in enumerate(cut_stripes(size)):
        assert (stripe.index, stripe.start) == (index, at)
        assert 0 < stripe.size_bytes <= STRIPE_BYTES
        at += stripe.size_bytes
    assert at == size


@given(SIZES, st.sets(st.integers(0, 39)))
def test_what_is_present_and_what_is_absent_make_up_the_copy(size: int, some: set[int]) -> None:
    stripes = cut_stripes(size)
    present = {index for index in some if index < len(stripes)}
    left = missing_stripes(stripe_bitmap(present, len(stripes)), size)
    assert {stripe.index for stripe in left} == {s.index for s in stripes} - present


def test_without_an_earlier_attempt_everything_is_absent() -> None:
    assert missing_stripes(b"", 3 * STRIPE_BYTES) == cut_stripes(3 * STRIPE_BYTES)


def test_a_bitmap_longer_than_the_copy_takes_nothing_away() -> None:
    assert missing_stripes(b"\x00\xff", STRIPE_BYTES) == cut_stripes(STRIPE_BYTES)


def test_a_small_copy_is_not_worth_a_second_stream() -> None:
    assert useful_streams(4, 1) == 1
    assert useful_streams(4, 2 * STRIPE_BYTES) == 2
    assert useful_streams(2, 100 * STRIPE_BYTES) == 2


def test_a_queue_gives_each_stripe_to_one_stream() -> None:
    queue = StripeQueue(())
    assert queue.next_stripe() is None
    queue.add_stripes(cut_stripes(2 * STRIPE_BYTES))
    taken = [queue.next_stripe(), queue.next_stripe(), queue.next_stripe()]
    assert taken == [
        Stripe(0, 0, STRIPE_BYTES),
        Stripe(1, STRIPE_BYTES, STRIPE_BYTES),
        None,
    ]


def test_a_bitmap_that_is_longer_than_its_copy_says_nothing_more() -> None:
    size = 3 * STRIPE_BYTES
    assert [one.index for one in missing_stripes(b"\x05" + bytes(1 << 20), size)] == [1]
    assert [one.index for one in missing_stripes(b"", size)] == [0, 1, 2]
    assert missing_stripes(b"\xff" * 9, size) == []


def test_a_small_node_uses_one_stream_and_a_large_one_two() -> None:
    assert [streams_for(processors) for processors in (1, 2, 7, 8, 192)] == [1, 1, 1, 2, 2]
