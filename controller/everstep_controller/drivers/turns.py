"""Turns of the event loop: work over many nodes lets others have theirs between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

# Some tens of microseconds each. A thread in the loop's place makes it wait longer on a machine
# whose processors are all taken: it is stopped while it has the interpreter.
_NODES = 64

T = TypeVar("T")


async def in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield what is iterated over, with a turn of the loop for others after each few."""
    for number, item in enumerate(items, start=1):
        yield item
        if number % _NODES == 0:
            await asyncio.sleep(0)
