"""Turns of users' messages on the event loop."""

import asyncio
from collections import Counter

from everstep_agent.concurrency.fair_turns import FairTurns

_FLOOD, _OTHER = 65534, 1000


def test_another_users_message_waits_for_a_few_of_one_who_floods() -> None:
    async def scenario() -> int:
        turns, served = FairTurns(), Counter[int]()

        async def reader(user: int, messages: int) -> None:
            for _ in range(messages):
                await turns.wait_turn(user)
                served[user] += 1

        floods = [asyncio.create_task(reader(_FLOOD, 10_000)) for _ in range(8)]
        for _ in range(20):
            await asyncio.sleep(0)
        before = served[_FLOOD]
        await reader(_OTHER, 1)
        between = served[_FLOOD] - before
        for flood in floods:
            flood.cancel()
        await asyncio.gather(*floods, return_exceptions=True)
        return between

    assert asyncio.run(scenario()) <= 8


def test_a_user_who_is_alone_is_served_to_the_end() -> None:
    async def scenario() -> int:
        turns, served = FairTurns(), 0
        for _ in range(1000):
            await turns.wait_turn(_FLOOD)
            served += 1
        return served

    assert asyncio.run(scenario()) == 1000


def test_a_long_message_counts_as_many() -> None:
    async def scenario() -> list[str]:
        turns, order = FairTurns(), list[str]()

        async def reader(name: str, user: int, size_bytes: int) -> None:
            for _ in range(6):
                await turns.wait_turn(user, size_bytes)
                order.append(name)

        await asyncio.gather(reader("long", _FLOOD, 64 * 1024), reader("short", _OTHER, 100))
        return order

    order = asyncio.run(scenario())
    assert order[:7].count("short") == 6


def test_who_left_while_it_waited_takes_no_turn_of_others() -> None:
    async def scenario() -> int:
        turns = FairTurns()
        for _ in range(4):
            await turns.wait_turn(_FLOOD)
        left = asyncio.create_task(turns.wait_turn(_FLOOD))
        stayed = asyncio.create_task(turns.wait_turn(_FLOOD))
        await asyncio.sleep(0)
        left.cancel()
        await stayed
        return turns.waiting

    assert asyncio.run(scenario()) == 0
