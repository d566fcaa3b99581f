"""Verification of copies: only bytes that hash to what was committed may be restored.

A trainer may have hashed its shards before it copied them. It has been told that its step is
committed by the time these are compared, so that no step waits for a hash. A copy that differs is
never verified: the step counts for the job as one that this rank skipped, the sentence goes to the
controller with the bad copies, and the slot is free again.

A verified copy is hashed again before it counts once more: memory fails, and old processes may
scribble.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.vault.memory.allocator import Requester
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.hashing import (
    CHUNK_BYTES,
    hash_part,
    hash_region,
    region_digests,
    root_of,
)
from everstep_agent.vault.snapshots.holdings import Holdings, PinnedCopy, RankMemory
from everstep_agent.vault.snapshots.slots import SlotEvent, SnapshotSlot
from everstep_agent.vault.vault_context import VaultContext
from everstep_common.rank_messages import Entry

# Bytes that a thread hashes as one piece of work, in about 10 ms.
_PIECE_BYTES = 8 * CHUNK_BYTES


class CopyVerifier:
    """Verifier of one job's copies on this node; ``report_bad`` takes a sentence on a bad one."""

    def __init__(
        self,
        context: VaultContext,
        holdings: Holdings,
        requester: Callable[[], Requester],
        report_bad: Callable[[str], None],
    ) -> None:
        self._context = context
        self._holdings = holdings
        self._requester = requester
        self._report_bad = report_bad

    async def verify_slot(self, memory: RankMemory, slot: SnapshotSlot) -> str:
        """Verify a committed copy, or take it out of its slot; return what is wrong, if anything.

        With a hash from before a restart of the agent, it must be the same.
        """
        epoch, expected = slot.epoch, slot.root_hash
        entries, size_bytes = slot.entries, slot.extent_bytes
        region = memory.regions[slot.index].retain()
        problem, found = "", b""
        try:
            async with memory.verify_lock:
                found, problem = await self._context.threads.run(
                    lambda: (hash_region(region, size_bytes), torn_shard(region, entries))
                )
                self._context.counters.torn += bool(problem)
        except (OSError, ValueError) as error:
            problem = f"could not be read: {error}"
        finally:
            region.release()
        if not problem and expected and found != expected:
            problem = "is not what was verified before"
        if not problem:
            memory.table.mark_verified(slot, epoch, found)
            return ""
        return problem if slot.epoch == epoch and slot.apply(SlotEvent.FOUND_BAD) else ""

    async def verify_again(self, pinned: PinnedCopy) -> bool:
        """Hash a held copy again, drop it when its bytes changed; return whether it is good."""
        manifest = pinned.manifest
        found = await hash_in_parallel(self._context.threads, pinned.region, manifest.size_bytes)
        if found == manifest.root_hash:
            return True
        self._holdings.discard(pinned)
        self._report_bad(f"{manifest.key} on {self._context.node} changed after it was verified")
        return False

    async def freeze(self, pinned: PinnedCopy) -> bool | None:
        """Freeze a copy and verify it: True when nobody can change it any more and it is good.

        None while a process of an older generation still has it mapped; False when it was bad.
        Bytes that were verified after they were frozen are not hashed again.
        """
        region = pinned.region
        if not pinned.retired or not await self._context.threads.run(region.freeze):
            return None
        if region.verified_hash == pinned.manifest.root_hash:
            return True
        if not await self.verify_again(pinned):
            return False
        region.verified_hash = pinned.manifest.root_hash
        return True

    async def immutable_region(self, pinned: PinnedCopy) -> Region | None:
        """Return verified memory that nobody can change any more; the caller releases it.

        None when the bytes are not what was verified. Where a process of an older generation still
        has the memory mapped (it may only be stopped, and go on at any time), the answer is a copy.
        Raises MemoryShortError when there is no memory for it.
        """
        good = await self.freeze(pinned)
        if good is not None:
            return pinned.region.retain() if good else None
        size = pinned.manifest.size_bytes
        copied = await self._context.allocator.duplicate(self._requester(), pinned.region, size)
        if await hash_in_parallel(self._context.threads, copied, size) == pinned.manifest.root_hash:
            copied.verified_hash = pinned.manifest.root_hash
            return copied
        copied.release()
        await self.verify_again(pinned)
        return None


async def hash_in_parallel(threads: ThreadPool, region: Region, size_bytes: int) -> bytes:
    """Return the root hash of the first bytes of a region, hashed by all threads that are free."""
    await threads.run(partial(region.read, 0, 0))  # mapped once, before all threads begin
    pieces = [
        partial(region_digests, region, start, min(start + _PIECE_BYTES, size_bytes))
        for start in range(0, size_bytes, _PIECE_BYTES)
    ]
    digests = await asyncio.gather(*map(threads.run, pieces))
    return root_of((digest for some in digests for digest in some), size_bytes)


def torn_shard(region: Region, entries: tuple[Entry, ...]) -> str:
    """Return which shard is not what the trainer had; empty if all are. For a worker thread."""
    for entry in entries:
        if not entry.digest:
            continue
        ends = entry.offset_bytes + entry.size_bytes
        if hash_part(region, entry.offset_bytes, ends) != entry.digest:
            return f"was torn while it was copied: shard {entry.name} is not what the trainer had"
    return ""
