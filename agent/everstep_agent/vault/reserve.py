"""Makes the slots of a rank: new memory for every generation and every process."""

from dataclasses import dataclass

from everstep_agent.vault.allocator import Demand
from everstep_agent.vault.held import RankMemory
from everstep_agent.vault.site import Site
from everstep_agent.vault.slots import Slot, SlotTable


@dataclass(frozen=True, slots=True)
class Owner:
    """The process that may write some memory."""

    generation: int
    rank: int
    pid: int


async def new_memory(site: Site, job: str, uid: int, owner: Owner, size_bytes: int) -> RankMemory:
    """Return empty slots that outlive a restart of the agent. Raises MemoryShortError."""
    name = f"everstep-{job:.80}-{owner.generation}-{owner.rank}"
    demand = Demand(uid, site.slots_per_rank, size_bytes, name)
    regions = dict(enumerate(await site.allocator.allocate(demand)))
    slots = [Slot(index) for index in regions]
    table = SlotTable(owner.generation, owner.rank, regions[0].size_bytes, slots, site.next_epoch)
    memory = RankMemory(job, table, regions, {})
    memory.holder = owner.pid
    for slot in slots:
        fd, shelved = regions[slot.index].fd, memory.shelved(slot)
        memory.names[slot.index] = await site.shelf.put(fd, shelved, site.workers)
    return memory
