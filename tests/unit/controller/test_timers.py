import asyncio
from dataclasses import dataclass, field

from everstep_controller.runtime.stalls import Absence
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


@dataclass
class StallingWatch:
    """Timers whose controller's clock jumps, as it does for a loop that stood still."""

    jumped_s: float = 0.0
    due: list[tuple[str, float]] = field(default_factory=list)
    stalls: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.timers = Timers(
            self.now_ns,
            lambda name: self.due.append((name, self.now_s())),
            lambda stall: self.stalls.append((stall.duration_ns / _S, self.now_s())),
        )

    def now_s(self) -> float:
        return round(asyncio.get_running_loop().time() + self.jumped_s, 6)

    def now_ns(self) -> int:
        return round(self.now_s() * _S)

    async def stand_still(self, seconds: float) -> None:
        """Let time pass in which the loop does not turn."""
        self.jumped_s += seconds
        await asyncio.sleep(0)


def test_what_came_due_in_a_stall_waits_for_the_sockets_and_its_remaining_time() -> None:
    async def scenario() -> None:
        watch = StallingWatch()
        watch.timers.watch_loop()
        watch.timers.set("soon", 12 * _S)
        watch.timers.set("later", 100 * _S)
        await asyncio.sleep(10)
        await watch.stand_still(20)
        await asyncio.sleep(100)
        watch.timers.stop()
        # The loop was seen to turn at 10 s; two of the timer's seconds were left.
        assert [(name, round(at_s)) for name, at_s in watch.due] == [("soon", 32), ("later", 100)]
        ((duration_s, told_s),) = watch.stalls
        assert 20 <= duration_s < 20.5
        assert told_s < watch.due[0][1]

    simulate(scenario())


def test_a_controller_that_stalls_all_the_time_puts_nothing_off_after_the_third() -> None:
    async def scenario() -> None:
        watch = StallingWatch()
        watch.timers.watch_loop()
        watch.timers.set("silent", 2 * _S)
        await asyncio.sleep(1)
        for _ in range(6):
            await watch.stand_still(10)
            await asyncio.sleep(0.5)
        await asyncio.sleep(1)
        assert [name for name, _ in watch.due] == ["silent"]
        assert 31 < watch.due[0][1] < 55
        assert watch.timers.stalls == 6
        assert len(watch.stalls) == 6
        watch.timers.stop()

    simulate(scenario())


def test_what_came_due_before_the_start_has_its_remaining_time_again() -> None:
    async def scenario() -> None:
        watch = StallingWatch(jumped_s=1000.0)
        watch.timers.watch_loop(Absence(900 * _S, 1000 * _S))
        watch.timers.set("in it", 930 * _S)
        watch.timers.set("before", 890 * _S)
        await asyncio.sleep(60)
        watch.timers.stop()
        assert [(name, round(at_s)) for name, at_s in watch.due] == [
            ("before", 1000),
            ("in it", 1030),
        ]

    simulate(scenario())
