"""Hashes what was committed: the bytes that are verified now are those that may be restored."""

from everstep_agent.vault.digests import torn
from everstep_agent.vault.snapshots.hashing import hash_region
from everstep_agent.vault.snapshots.holdings import RankMemory
from everstep_agent.vault.snapshots.slots import Slot, SlotEvent
from everstep_agent.vault.vault_context import Site


async def prove(site: Site, memory: RankMemory, slot: Slot) -> str:
    """Verify a committed copy, or take it out of its slot; return what is wrong with it, if so.

    With a hash from before a restart of the agent, it must be the same.
    """
    epoch, expected = slot.epoch, slot.root_hash
    entries, size_bytes = slot.entries, slot.extent_bytes
    region = memory.regions[slot.index].hold()
    problem, found = "", b""
    try:
        async with memory.verifying:
            found, problem = await site.workers.run(
                lambda: (hash_region(region, size_bytes), torn(region, entries))
            )
            site.counts.torn += bool(problem)
    except (OSError, ValueError) as error:
        problem = f"could not be read: {error}"
    finally:
        region.drop()
    if not problem and expected and found != expected:
        problem = "is not what was verified before"
    if not problem:
        memory.table.verified(slot, epoch, found)
        return ""
    return problem if slot.epoch == epoch and slot.apply(SlotEvent.FOUND_BAD) else ""
