"""Waits for what nothing tells of: what another process, a thread, a file or a counter becomes.

The one place in tests that polls, for code with a loop and for code without. What a selector or an
event tells of is waited for there. Patience is meant for a machine whose processors are free: where
more processes want them than there are, it is as much longer.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import TypeVar, cast, overload

T = TypeVar("T")

PATIENCE_S = 90.0
_PAUSE_S = 0.01
# An answer of the command line costs a second of a processor, which others need.
_PAUSE_S_MAX = 2.0


def wait_until(ask: Callable[[], T | None], patience_s: float = PATIENCE_S, what: str = "") -> T:
    """Ask until the answer is true, and return it; an OSError is an answer that is not.

    ``what``: what the failure calls the lack of it. Raises AssertionError.
    """
    began_s, last = time.monotonic(), cast(object, None)
    while True:
        asked_s = time.monotonic()
        try:
            if answer := ask():
                return answer
            last = answer
        except OSError as error:
            last = error
        answered_s = time.monotonic()
        waited_s = answered_s - began_s
        assert waited_s < patience_s * crowding(), _lack(ask, waited_s, what, last)
        time.sleep(_pause_s(answered_s - asked_s))


@overload
async def eventually(
    ask: Callable[[], Awaitable[T | None]], patience_s: float = ..., what: str = ...
) -> T: ...
@overload
async def eventually(
    ask: Callable[[], T | None], patience_s: float = ..., what: str = ...
) -> T: ...
async def eventually(
    ask: Callable[[], T | Awaitable[T | None] | None],
    patience_s: float = PATIENCE_S,
    what: str = "",
) -> T:
    """Do what wait_until does while the loop goes on; the question may be a coroutine."""
    loop, last = asyncio.get_running_loop(), cast(object, None)
    patience_s *= crowding()
    limit = asyncio.timeout(patience_s)
    try:
        async with limit:
            while True:
                asked_s = loop.time()
                try:
                    asked = ask()
                    answer = await asked if isawaitable(asked) else asked
                    if answer:
                        return cast("T", answer)
                    last = answer
                except OSError as error:
                    last = error
                await asyncio.sleep(_pause_s(loop.time() - asked_s))
    except TimeoutError:
        assert limit.expired()
        raise AssertionError(_lack(ask, patience_s, what, last)) from None


def crowding() -> float:
    """Return how many processes want each processor, as of the last minute; at least one."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _pause_s(took_s: float) -> float:
    """Ask for a tenth of the time at most: the machine is for what is waited for."""
    return min(max(_PAUSE_S, 9 * took_s), _PAUSE_S_MAX)


def _lack(ask: Callable[[], object], patience_s: float, what: str, last: object) -> str:
    """Say what did not come, or where it was waited for, and what the last answer was."""
    code = getattr(ask, "__code__", None)
    where = f"line {code.co_firstlineno} of {code.co_filename}" if code else repr(ask)
    return f"still {what or f'not so ({where})'} after {patience_s:g} s: {last!r}"
