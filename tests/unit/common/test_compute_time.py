"""Own work of a rank: what is told of it can be subtracted, whatever came in between."""

import random

import pytest

from everstep_common.compute_time import (
    PACKED_MAX,
    ComputeTime,
    seconds_between,
    steps_between,
)


@pytest.mark.parametrize("start", [0, 2**59 - 1, 2**16 - 3, (2**43 - 5) << 16])
def test_between_two_numbers_lie_the_steps_and_seconds_that_were_added(start: int) -> None:
    chance = random.Random(start)
    own = [chance.randrange(1, 10**10) for _ in range(1000)]
    work = ComputeTime(start)
    for one in own:
        work = work.add_step(one)
        assert 0 < work.packed <= PACKED_MAX
    assert steps_between(start, work.packed) == 1000
    assert seconds_between(start, work.packed) == pytest.approx(sum(own) / 1e9, abs=1e-5)


def test_steps_below_a_microsecond_add_up() -> None:
    work = ComputeTime()
    for _ in range(3000):
        work = work.add_step(500)
    assert seconds_between(0, work.packed) == pytest.approx(0.0015)
