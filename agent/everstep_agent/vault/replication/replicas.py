"""Keeps what came of another rank's memory: a replica, until nobody needs it."""

from everstep_agent.concurrency.time_slices import slowly
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyFacts
from everstep_agent.vault.snapshots.descriptor_store import ShelvedMemory
from everstep_agent.vault.snapshots.holdings import Replica
from everstep_agent.vault.snapshots.slots import SlotState


async def keep_replica(vault: JobVault, facts: CopyFacts, region: Region) -> None:
    """Keep a verified copy that came from elsewhere; takes over the region."""
    key, shelf = facts.key, vault.site.shelf
    shelved = ShelvedMemory(
        job=vault.job,
        generation=key.generation,
        rank=key.rank,
        slot=-1,
        state=SlotState.VERIFIED.value,
        step=key.step,
        root_hash=facts.root_hash,
        entries=facts.entries,
        replica=True,
    )
    try:
        await slowly(vault.layouts.learn(facts))
        await shelf.keep(facts.entries)
        name = await shelf.put(region.fd, shelved, vault.site.workers)
    except BaseException:
        region.drop()
        raise
    vault.holdings.add_replica(Replica(facts, region, name))
    vault.changed()
