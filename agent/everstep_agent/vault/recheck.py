"""Looks again at a copy that was verified before: memory fails, and old processes may scribble."""

from everstep_agent.vault.hashing import hash_region
from everstep_agent.vault.held import Held
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory import Region


async def recheck(vault: JobVault, held: Held) -> bool:
    """Hash a held copy again, drop it when its bytes changed; return whether it is still good."""
    facts, region = held.facts, held.region
    root_hash = await vault.site.workers.run(lambda: hash_region(region, facts.size_bytes))
    if root_hash == facts.root_hash:
        return True
    vault.holdings.discard(held)
    vault.bad(f"{facts.key} on {vault.site.node} changed after it was verified")
    return False


async def immutable(vault: JobVault, held: Held) -> Region | None:
    """Return verified memory that nobody can change any more; the caller drops it.

    None when the bytes are not what was verified. Where a process of an older generation still
    has the memory mapped (it may only be stopped, and go on at any time), the answer is a copy.
    Raises MemoryShortError when there is no room for it.
    """
    region = held.region
    if held.retired and await vault.site.workers.run(region.freeze):
        return region.hold() if await recheck(vault, held) else None
    size = held.facts.size_bytes
    copied = await vault.site.allocator.duplicate(vault.uid, region, size)
    root_hash = await vault.site.workers.run(lambda: hash_region(copied, size))
    if root_hash == held.facts.root_hash:
        return copied
    copied.drop()
    await recheck(vault, held)
    return None
