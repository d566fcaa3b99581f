"""The beat: everything that is done every second is done at the same moment."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.concurrency.common_tick import next_tick, tick
from fakes.jumping_loop import simulate


def test_tasks_that_began_at_different_moments_wake_up_together() -> None:
    async def scenario() -> list[float]:
        loop, woken = asyncio.get_running_loop(), list[float]()

        async def beat(began_s: float) -> None:
            await asyncio.sleep(began_s)
            for _ in range(3):
                await tick(1.0)
                woken.append(loop.time())

        await asyncio.gather(beat(0.1), beat(0.3), beat(0.99))
        return woken

    assert simulate(scenario()) == [1.0] * 3 + [2.0] * 3 + [3.0] * 3


def test_a_timer_that_came_a_little_early_is_not_due_twice() -> None:
    assert next_tick(4.9999, 5.0) == 10.0
    assert next_tick(5.0, 5.0) == 10.0


def test_who_is_late_leaves_ticks_out_and_makes_none_up() -> None:
    assert next_tick(7.2, 1.0) == 8.0


@given(now_s=st.floats(0, 1e9), interval_s=st.sampled_from((0.2, 1.0, 5.0, 10.0, 60.0)))
def test_the_next_tick_is_within_an_interval(now_s: float, interval_s: float) -> None:
    wait_s = next_tick(now_s, interval_s) - now_s
    assert 0 < wait_s <= interval_s + 0.002
