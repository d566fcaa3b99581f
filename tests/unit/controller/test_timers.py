import asyncio
from dataclasses import dataclass, field

from everstep_controller.runtime.timers import Timers
from fakes.jumping_loop import simulate

_S = 1_000_000_000


@dataclass
class Watch:
    """Timers on the loop's clock, and when each came due. The controller's clock may be behind."""

    behind_ns: int = 0
    due: list[tuple[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.timers = Timers(self.now_ns, lambda name: self.due.append((name, self.now_s())))

    def now_s(self) -> float:
        return round(asyncio.get_running_loop().time(), 6)

    def now_ns(self) -> int:
        # Only its first second is slow: it catches up, as a clock that is slewed does.
        return round(self.now_s() * _S) - (self.behind_ns if self.now_s() < 6 else 0)


def test_a_timer_comes_due_once_at_its_time() -> None:
    async def scenario() -> None:
        watch = Watch()
        watch.timers.set("a", 5 * _S)
        await asyncio.sleep(60)
        assert watch.due == [("a", 5.0)]

    simulate(scenario())


def test_one_that_is_overdue_comes_due_at_once() -> None:
    async def scenario() -> None:
        watch = Watch()
        await asyncio.sleep(9)
        watch.timers.set("a", 5 * _S)
        await asyncio.sleep(1)
        assert watch.due == [("a", 9.0)]

    simulate(scenario())


def test_setting_one_again_replaces_it() -> None:
    async def scenario() -> None:
        watch = Watch()
        watch.timers.set("a", 5 * _S)
        watch.timers.set("a", 8 * _S)
        watch.timers.set("b", 8 * _S)
        watch.timers.set("b", 2 * _S)
        await asyncio.sleep(60)
        assert watch.due == [("b", 2.0), ("a", 8.0)]

    simulate(scenario())


def test_only_those_that_are_wanted_stay() -> None:
    async def scenario() -> None:
        watch = Watch()
        watch.timers.set("a", 5 * _S)
        watch.timers.set("b", 5 * _S)
        watch.timers.keep_only({"b": 7 * _S, "c": 3 * _S})
        await asyncio.sleep(60)
        assert watch.due == [("c", 3.0), ("b", 7.0)]

    simulate(scenario())


def test_after_a_stop_none_comes_due() -> None:
    async def scenario() -> None:
        watch = Watch()
        watch.timers.set("a", 5 * _S)
        watch.timers.stop()
        await asyncio.sleep(60)
        assert watch.due == []

    simulate(scenario())


def test_none_is_early_when_the_controllers_clock_is_behind_the_loops() -> None:
    async def scenario() -> None:
        watch = Watch(behind_ns=_S)
        watch.timers.set("a", 5 * _S)
        await asyncio.sleep(60)
        assert watch.due == [("a", 6.0)]

    simulate(scenario())
