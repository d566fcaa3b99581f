"""Slot allocation: new memory for the slots of a rank, for every generation and every process."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from everstep_agent.vault.memory.allocator import AllocationRequest, MemoryShortError
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.holdings import RankMemory
from everstep_agent.vault.snapshots.slots import SlotTable, SnapshotSlot
from everstep_agent.vault.vault_context import VaultContext

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SlotOwner:
    """The process that may write some memory."""

    generation: int
    rank: int
    pid: int


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """Slots for a rank of this user's job."""

    job: str
    uid: int
    slots: int
    # The fewest slots that are enough where there is no memory for all: after a recovery, when an
    # older generation still has its slots, fewer are better than none for the whole generation.
    slots_min: int
    slot_bytes: int
    # Whether the job was promised no memory when its launcher joined, and begins only now.
    after_promises: bool = False


async def allocate_slots(
    context: VaultContext, wanted: SlotRequest, generation: int, rank: int
) -> list[Region]:
    """Return new memory for the slots of a rank. Raises MemoryShortError."""
    return await _as_many_as_fit(context, wanted, f"everstep-{wanted.job:.80}-{generation}-{rank}")


async def retire_if_needed(context: VaultContext, before: RankMemory, wanted: SlotRequest) -> None:
    """Give up the slots that new ones replace, if the new ones fit only then."""
    request = _allocation_request(wanted, wanted.slots, "")
    if await context.allocator.fits(request):
        return
    if await context.allocator.fits(request, before.live_regions()):
        before.retire(context.region_store)


async def store_slots(
    context: VaultContext, lineage: str, owner: SlotOwner, made: Iterable[Region]
) -> RankMemory:
    """Return new memory as empty slots that outlive a restart of the agent."""
    regions = dict(enumerate(made))
    slots = [SnapshotSlot(index) for index in regions]
    table = SlotTable(
        owner.generation, owner.rank, regions[0].size_bytes, slots, context.next_epoch
    )
    memory = RankMemory(lineage, table, regions, {})
    memory.writer_pid, memory.allocation = owner.pid, context.next_epoch()
    for slot in slots:
        fd, stored = regions[slot.index].fd, memory.stored_region(slot)
        memory.names[slot.index] = await context.region_store.add(fd, stored, context.threads)
    return memory


async def _as_many_as_fit(context: VaultContext, wanted: SlotRequest, name: str) -> list[Region]:
    slots = wanted.slots
    while True:
        try:
            return await context.allocator.allocate(_allocation_request(wanted, slots, name))
        except MemoryShortError as error:
            if slots <= wanted.slots_min:
                raise
            slots -= 1
            logger.warning("job %s: %d slots for a rank instead: %s", wanted.job, slots, error)


def _allocation_request(wanted: SlotRequest, slots: int, name: str) -> AllocationRequest:
    return AllocationRequest(
        wanted.uid,
        slots,
        wanted.slot_bytes,
        name,
        wanted.job,
        after_promises=wanted.after_promises,
    )
