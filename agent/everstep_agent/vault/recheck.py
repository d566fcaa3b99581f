"""Looks again at a copy that was verified before: memory fails, and old processes may scribble."""

import asyncio
from functools import partial

from everstep_agent.concurrency.thread_pool import Workers
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.hashing import CHUNK_BYTES, region_digests, root_of
from everstep_agent.vault.snapshots.holdings import Held

# One piece of work for a thread: 10 ms.
_PIECE_BYTES = 8 * CHUNK_BYTES


async def root_hash(workers: Workers, region: Region, size_bytes: int) -> bytes:
    """Return the root hash of the first bytes of a region, hashed by all threads that are free."""
    await workers.run(partial(region.read, 0, 0))  # mapped once, before all threads begin
    pieces = [
        partial(region_digests, region, start, min(start + _PIECE_BYTES, size_bytes))
        for start in range(0, size_bytes, _PIECE_BYTES)
    ]
    digests = await asyncio.gather(*map(workers.run, pieces))
    return root_of((digest for some in digests for digest in some), size_bytes)


async def recheck(vault: JobVault, held: Held) -> bool:
    """Hash a held copy again, drop it when its bytes changed; return whether it is still good."""
    facts, region = held.facts, held.region
    if await root_hash(vault.site.workers, region, facts.size_bytes) == facts.root_hash:
        return True
    vault.holdings.discard(held)
    vault.bad(f"{facts.key} on {vault.site.node} changed after it was verified")
    return False


async def frozen(vault: JobVault, held: Held) -> bool | None:
    """Freeze a copy and verify it: True when nobody can change it any more and it is good.

    None while a process of an older generation still has it mapped; False when it was bad. Bytes
    that were verified after they were frozen are not hashed again.
    """
    region = held.region
    if not held.retired or not await vault.site.workers.run(region.freeze):
        return None
    if region.proven == held.facts.root_hash:
        return True
    if not await recheck(vault, held):
        return False
    region.proven = held.facts.root_hash
    return True


async def immutable(vault: JobVault, held: Held) -> Region | None:
    """Return verified memory that nobody can change any more; the caller drops it.

    None when the bytes are not what was verified. Where a process of an older generation still
    has the memory mapped (it may only be stopped, and go on at any time), the answer is a copy.
    Raises MemoryShortError when there is no room for it.
    """
    good = await frozen(vault, held)
    if good is not None:
        return held.region.hold() if good else None
    size = held.facts.size_bytes
    copied = await vault.site.allocator.duplicate(vault.asker, held.region, size)
    if await root_hash(vault.site.workers, copied, size) == held.facts.root_hash:
        copied.proven = held.facts.root_hash
        return copied
    copied.drop()
    await recheck(vault, held)
    return None
