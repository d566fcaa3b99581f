"""Time slices: long work on the event loop, done in parts so that other tasks run in between."""

import asyncio
from collections.abc import Generator
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

from everstep_agent.concurrency.fair_turns import served_user
from everstep_common.round_robin import RoundRobinSemaphore

T = TypeVar("T")

# Work shorter than this is done at once, in the turn of the loop in which it comes.
_AT_ONCE_S = 0.001
# Length of a slice; a single step of long work cannot be divided and takes two or three ms on top.
_SLICE_S = 0.002
# Bytes that are copied at once, which takes a fifth of a millisecond.
_MOVED_AT_ONCE = 512 * 1024

# Long work takes turns round the users, one slice in each turn of the loop: a flood of it would
# stall the loop otherwise. It belongs to the loop, as its clock does: no caller has to pass it on.
_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, RoundRobinSemaphore] = WeakKeyDictionary()


async def run_in_slices(work: Generator[None, None, T]) -> T:
    """Return the result of work that yields where it may be left for others."""
    loop = asyncio.get_running_loop()
    slice_s = _AT_ONCE_S
    try:
        _run(work, loop, slice_s)
    except StopIteration as done:
        return cast("T", done.value)
    turns = _turns.setdefault(loop, RoundRobinSemaphore(1))
    while True:
        await asyncio.sleep(0)
        async with turns.turn(served_user.get()):
            try:
                _run(work, loop, _SLICE_S)
            except StopIteration as done:
                return cast("T", done.value)


class LoopYielder:
    """Lets others have theirs while many bytes move: a socket that is ready ends no turn."""

    def __init__(self) -> None:
        self._moved = 0

    async def count_bytes(self, size_bytes: int) -> None:
        """Count bytes that were moved."""
        self._moved += size_bytes
        if self._moved >= _MOVED_AT_ONCE:
            self._moved = 0
            await asyncio.sleep(0)


def _run(work: Generator[None, None, T], loop: asyncio.AbstractEventLoop, slice_s: float) -> None:
    """Go on for a slice. Raises StopIteration at the end."""
    ends = loop.time() + slice_s
    while loop.time() < ends:
        next(work)
