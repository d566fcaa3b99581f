"""Turns of several owners."""

import asyncio

import pytest

from everstep_common.round_robin import RoundRobinSemaphore

_FLOOD, _OTHER = 65534, 1000


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class _Work:
    """Work that takes until it is ended, in the order in which it got its turns."""

    def __init__(self, at_once: int) -> None:
        self.turns = RoundRobinSemaphore(at_once)
        self.began: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def want(self, owner: int, name: str) -> None:
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._do(owner, name))
        await _settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await _settle()

    async def cancel(self, *names: str) -> None:
        for name in names:
            self.tasks[name].cancel()
        await asyncio.gather(*(self.tasks[name] for name in names), return_exceptions=True)

    async def _do(self, owner: int, name: str) -> None:
        async with self.turns.turn(owner):
            self.began.append(name)
            await self._ends[name].wait()


def test_an_owner_of_one_does_not_wait_for_all_of_an_owner_of_many() -> None:
    async def scenario() -> list[str]:
        work = _Work(2)
        for number in range(6):
            await work.want(1, f"many {number}")
        await work.want(2, "one")
        assert work.began == ["many 0", "many 1"]
        await work.end("many 0")
        await work.end("many 1")
        await work.end("many 2")
        found = list(work.began)
        await work.cancel(*work.tasks)
        return found

    assert asyncio.run(scenario()) == ["many 0", "many 1", "many 2", "one", "many 3"]


def test_who_gives_up_waiting_or_is_cancelled_within_a_turn_passes_it_on() -> None:
    async def scenario() -> list[str]:
        work = _Work(1)
        for name in ("a", "b", "c", "d"):
            await work.want(ord(name), name)
        await work.cancel("b")
        await work.cancel("a")
        await _settle()
        assert work.began == ["a", "c"]
        # The turn was passed to "d", which is cancelled before it has heard of that.
        work.tasks["c"].cancel()
        await asyncio.gather(work.tasks["c"], return_exceptions=True)
        await work.cancel("d")
        await work.want(9, "e")
        found = list(work.began)
        await work.cancel("e")
        return found

    assert asyncio.run(scenario())[-1] == "e"


@pytest.mark.parametrize("cancelled", [False, True])
def test_long_work_goes_round_the_users(cancelled: bool) -> None:
    async def scenario() -> list[int]:
        turns, order = RoundRobinSemaphore(1), list[int]()

        async def work(user: int) -> None:
            async with turns.turn(user):
                order.append(user)
                await asyncio.sleep(0)

        first = asyncio.create_task(work(0))
        await asyncio.sleep(0)
        works = [asyncio.create_task(work(_FLOOD)) for _ in range(50)]
        works.append(asyncio.create_task(work(_OTHER)))
        await asyncio.sleep(0)
        if cancelled:
            works[1].cancel()
        await asyncio.gather(first, *works, return_exceptions=True)
        async with turns.turn(0):  # it is free again
            return order

    order = asyncio.run(scenario())
    assert order.index(_OTHER) <= 3
    assert len(order) == (51 if cancelled else 52)
