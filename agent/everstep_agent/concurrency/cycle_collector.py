"""Cycle collector: Python's garbage collector, kept from long passes at inconvenient moments.

Nearly all that the agent drops goes at once, by its count of references. A pass over all that lives
holds the event loop for 25 ms for each long manifest of 200,000 shards, and by Python's own
thresholds one comes in the middle of each that is read.
"""

import asyncio
import gc

# Python's own threshold for young objects: a pass over them takes less than a millisecond.
_YOUNG, _MIDDLE = 700, 10
# Threshold for old objects, in passes over the middle generation: so high that it is never reached.
_NEVER = 1 << 30
_LEAST_S = 60.0
# Passes over all objects take no more than this share of the time.
_PART = 10_000


def collect_young_only() -> None:
    """Have only what is new looked at, from now on."""
    gc.collect()
    gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)


def mark_all_old() -> None:
    """Have what was made until now counted as old: a manifest that has just come.

    Two passes over the young would look at each of its shards, at 10 to 50 ms each where it is in
    nobody's cache. What is frozen and thawed is old, and neither looks at anything.
    """
    gc.freeze()
    gc.unfreeze()


async def collect_all_periodically() -> None:
    """Look at everything from time to time, the less often the longer that takes."""
    clock, wait_s = asyncio.get_running_loop().time, _LEAST_S
    while True:
        await asyncio.sleep(wait_s)
        began = clock()
        gc.collect()
        wait_s = max(_LEAST_S, (clock() - began) * _PART)
