"""What fits, and what is said when it does not."""

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault.memory.capacity import (
    NO_USE,
    MemoryLimits,
    MemoryUse,
    NodeCapacity,
    capacity_left,
    capacity_refusal,
    user_capacity_left,
)
from everstep_agent.vault.memory.pages import HUGE_PAGE_BYTES

_HUGE = HUGE_PAGE_BYTES


def test_what_fits_is_not_refused() -> None:
    assert (
        capacity_refusal(3, 100, capacity_left(NodeCapacity(300), MemoryLimits(), NO_USE)) is None
    )


def test_a_refusal_names_the_tightest_limit_and_what_would_fit() -> None:
    limits = MemoryLimits(reserve_bytes=10, total_bytes=200, per_user_bytes=150)
    said = capacity_refusal(3, 100, capacity_left(NodeCapacity(1000), limits, MemoryUse(100, 90)))
    assert said == (
        "3 x 100 bytes of snapshot memory were asked for and jobs.memory_per_user_bytes_max "
        "leaves 60 bytes: 3 x 20 bytes would fit"
    )


@given(*[st.integers(0, 1000)] * 4)
def test_nothing_above_what_is_available_is_ever_granted(
    wanted: int, available: int, reserve: int, used: int
) -> None:
    left = capacity_left(NodeCapacity(available), MemoryLimits(reserve, 500), MemoryUse(used, 0))
    if wanted and capacity_refusal(1, wanted, left) is None:
        assert wanted <= available - reserve
        assert used + wanted <= 500


def test_slots_of_huge_pages_need_no_ordinary_memory() -> None:
    left = capacity_left(NodeCapacity(0, 6 * _HUGE), MemoryLimits(), NO_USE)
    assert left.fits(3, 2 * _HUGE)
    assert not left.fits(3, 2 * _HUGE + 1)


def test_slots_that_find_no_place_in_the_pool_are_of_ordinary_memory() -> None:
    left = capacity_left(NodeCapacity(2 * _HUGE, 5 * _HUGE), MemoryLimits(), NO_USE)
    assert left.fits(3, 2 * _HUGE)
    # Of the pool one huge page is left over, and half a slot is nothing.
    assert not left.fits(4, 2 * _HUGE)


def test_what_the_operator_keeps_free_is_ordinary_memory() -> None:
    left = capacity_left(
        NodeCapacity(_HUGE, 2 * _HUGE), MemoryLimits(reserve_bytes=4 * _HUGE), NO_USE
    )
    assert left.fits(2, _HUGE)
    assert not left.fits(3, _HUGE)


def test_the_limits_count_huge_pages_as_large_as_they_are() -> None:
    left = capacity_left(NodeCapacity(0, 8 * _HUGE), MemoryLimits(total_bytes=3 * _HUGE), NO_USE)
    assert left.fits(3, 100)
    assert not left.fits(4, 100)


def test_a_refusal_tells_what_is_in_the_pool() -> None:
    assert capacity_refusal(
        2, 4 * _HUGE, capacity_left(NodeCapacity(_HUGE, 4 * _HUGE), MemoryLimits(), NO_USE)
    ) == (
        "2 x 8.0 MiB of snapshot memory were asked for and this node can spare 10.0 MiB (8.0 MiB "
        "in the pool of huge pages): 2 x 4.0 MiB would fit"
    )


@given(
    st.integers(1, 6),
    st.integers(0, 12 * _HUGE),
    st.integers(0, 6),
    st.integers(0, 12 * _HUGE),
)
def test_what_is_said_to_fit_does(pieces: int, ordinary: int, huge: int, limit: int) -> None:
    left = capacity_left(
        NodeCapacity(ordinary, huge * _HUGE), MemoryLimits(total_bytes=limit), NO_USE
    )
    largest = left.largest_piece(pieces)
    assert largest == 0 or left.fits(pieces, largest)
    assert not left.fits(pieces, left.size_bytes // pieces + 1)


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 200))
def test_what_is_taken_is_missing_once(ordinary: int, pool: int, taken: int) -> None:
    left = NodeCapacity(ordinary, pool).without(taken)
    assert left.ordinary_bytes + left.pool_bytes == ordinary + pool - taken
    assert left.pool_bytes >= 0


def _left_for_user(ratio: float, use: MemoryUse, promised: int = 0) -> int:
    node = capacity_left(NodeCapacity(1000 - use.total_bytes), MemoryLimits(), use)
    return user_capacity_left(node, ratio, use, promised).size_bytes


def test_one_user_leaves_a_tenth_of_all_that_snapshots_may_take() -> None:
    assert _left_for_user(0.9, NO_USE) == 900
    assert _left_for_user(0.9, MemoryUse(500, 500)) == 400
    assert _left_for_user(0.9, MemoryUse(950, 950)) == 0
    # What the others have not left cannot be had, whoever asks.
    assert _left_for_user(0.9, MemoryUse(300, 0)) == 700
    assert _left_for_user(1.0, NO_USE) == 1000


def test_what_others_were_promised_is_kept_for_them_up_to_half_of_all() -> None:
    assert _left_for_user(0.9, NO_USE, promised=50) == 900
    assert _left_for_user(0.9, NO_USE, promised=300) == 700
    # A promise that nobody uses leaves half of all to those who run.
    assert _left_for_user(0.9, MemoryUse(400, 400), promised=900) == 100


def test_a_refusal_by_the_share_of_one_user_names_its_key() -> None:
    use = MemoryUse(800, 800)
    left = user_capacity_left(capacity_left(NodeCapacity(200), MemoryLimits(), use), 0.9, use, 0)
    assert capacity_refusal(1, 150, left) == (
        "1 x 150 bytes of snapshot memory were asked for and jobs.memory_per_user_max_ratio leaves "
        "100 bytes: 1 x 100 bytes would fit"
    )


@given(*[st.integers(0, 1000)] * 4)
def test_no_user_ever_gets_more_than_its_share(
    free: int, own: int, others: int, promised: int
) -> None:
    use = MemoryUse(own + others, own)
    node = capacity_left(NodeCapacity(free), MemoryLimits(), use)
    left = user_capacity_left(node, 0.9, use, promised).size_bytes
    assert 0 <= left <= free
    assert left == 0 or own + left <= 0.9 * (free + own + others) + 1
