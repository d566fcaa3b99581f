"""Common tick: what is done every second is done at the same moment, for a single wake-up.

A wake-up costs more than the work that it is for: a process that slept finds its caches cold.
"""

import asyncio
import math

# A timer may fire this much early; the tick then counts as done, not as due once more.
_EARLY_S = 0.001


def next_tick(now_s: float, interval_s: float) -> float:
    """Return the next moment that is a multiple of the interval on the loop's clock.

    That clock counts from the boot, so that the nodes of a fleet do not keep step.
    """
    return (math.floor((now_s + _EARLY_S) / interval_s) + 1) * interval_s


async def tick(interval_s: float) -> None:
    """Sleep until the next multiple of the interval: at least once too rarely when that is late."""
    now_s = asyncio.get_running_loop().time()
    await asyncio.sleep(next_tick(now_s, interval_s) - now_s)
