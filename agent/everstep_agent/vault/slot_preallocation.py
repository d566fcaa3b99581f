"""Slot preallocation: while the processes of a generation start; no recovery waits for memory."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace

from everstep_agent.vault.memory.allocator import AllocationRequest, MemoryShortError
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.slot_allocation import SlotOwner, SlotRequest, allocate_slots
from everstep_agent.vault.snapshots.holdings import RankMemory
from everstep_agent.vault.snapshots.restore_plan import RestorePlan
from everstep_agent.vault.vault_context import VaultContext

logger = logging.getLogger(__name__)

# How long slots wait for their process: longer than a large job takes to start. One that has not
# asked by then takes no snapshots any more, as its script was changed.
_KEPT_S = 600.0
# Slots larger than what is asked for by this factor are freed, and new ones made.
_TOO_LARGE = 1.25
# What is made more than the last state's size: trainers ask for a 64th more, and at least 64 KiB.
_MARGIN_SHARE = 32
_MARGIN_BYTES = 128 * 1024


def slot_bytes_for(copy_bytes: int) -> int:
    """Return how large slots a rank will ask for whose copy is so large. Pure."""
    return copy_bytes + copy_bytes // _MARGIN_SHARE + _MARGIN_BYTES


def slot_sizes_of_plan(plan: RestorePlan, memories: Iterable[RankMemory]) -> dict[int, int]:
    """Return how large slots each rank of this node will ask for, as far as it is known. Pure.

    As those that it had here; or for a copy of the plan, where it was on another node.
    """
    sizes = {source.rank: slot_bytes_for(source.size_bytes) for source in plan.sources}
    sizes |= {memory.table.rank: memory.table.slot_bytes for memory in memories}
    return {rank: sizes[rank] for rank in sorted(sizes) if rank in plan.ranks}


class PreallocatedSlots:
    """One job's. No process has seen any of it; each rank's goes to the first one that asks."""

    def __init__(self, context: VaultContext) -> None:
        self._context = context
        self._ready: dict[tuple[int, int], list[Region]] = {}
        # Generations and ranks that have asked already: nothing is made for them any more.
        self._asked: set[tuple[int, int]] = set()
        # Made while this node waits as a spare, for whichever ranks come here.
        self._spare: list[list[Region]] = []
        self._one_at_a_time = asyncio.Lock()

    async def prepare_spare(self, one: SlotRequest, ranks: int) -> None:
        """Have the slots of so many ranks for the next generation. Raises MemoryShortError."""
        async with self._one_at_a_time:
            before, self._spare = self._spare, []
            for regions in before:
                if len(self._spare) < ranks and _fits(regions, one):
                    self._spare.append(regions)
                else:
                    _release(regions)
            name = f"everstep-{one.job:.80}-spare"
            request = AllocationRequest(
                one.uid, one.slots, one.slot_bytes, name, one.job, spare=True
            )
            while len(self._spare) < ranks:
                self._spare.append(await self._context.allocator.allocate(request))

    async def allocate_for(self, generation: int, wanted: Mapping[int, SlotRequest]) -> None:
        """Make the slots of these ranks, as far as there is memory for all of them."""
        try:
            await self._allocate_for(generation, wanted)
        finally:
            self._release_spare()

    async def _allocate_for(self, generation: int, wanted: Mapping[int, SlotRequest]) -> None:
        for rank, one in wanted.items():
            key = (generation, rank)
            async with self._one_at_a_time:
                if key in self._asked or key in self._ready:
                    continue
                try:
                    whole = replace(one, slots_min=one.slots)
                    self._ready[key] = self._take_spare(whole) or await allocate_slots(
                        self._context, whole, generation, rank
                    )
                except MemoryShortError as error:  # it will be said, and fewer made, when asked for
                    logger.info("slots of rank %d ahead of time: %s", rank, error)
                    return
            asyncio.get_running_loop().call_later(_KEPT_S, self._give_back, key)

    async def take_slots(self, owner: SlotOwner, size_bytes: int) -> list[Region]:
        """Return the slots of a rank that asks for so much; none where they do not fit.

        Waits for those that are being made: the caller would wait as long for its own.
        """
        key = (owner.generation, owner.rank)
        self._asked.add(key)
        async with self._one_at_a_time:
            regions = self._ready.get(key, [])
            if regions and size_bytes <= regions[0].size_bytes <= _TOO_LARGE * size_bytes:
                return self._ready.pop(key)
            self._give_back(key)
        return []

    @property
    def idle_bytes(self) -> int:
        """Return how much ``release`` would give back."""
        sets = [*self._ready.values(), *self._spare]
        return sum(region.size_bytes for regions in sets for region in regions)

    def release(self) -> bool:
        """Give all back: somebody needs it now; False when there was nothing."""
        found = bool(self._ready or self._spare)
        self._release_spare()
        for key in list(self._ready):
            self._give_back(key)
        return found

    def end_generation(self, generation: int) -> None:
        """A generation and those before it ask for nothing any more."""
        for key in [key for key in self._ready if key[0] <= generation]:
            self._give_back(key)
        self._asked = {key for key in self._asked if key[0] > generation}

    def _give_back(self, key: tuple[int, int]) -> None:
        _release(self._ready.pop(key, []))

    def _take_spare(self, one: SlotRequest) -> list[Region]:
        for number, regions in enumerate(self._spare):
            if _fits(regions, one):
                return self._spare.pop(number)
        return []

    def _release_spare(self) -> None:
        spare, self._spare = self._spare, []
        for regions in spare:
            _release(regions)


def _fits(regions: list[Region], one: SlotRequest) -> bool:
    size = regions[0].size_bytes
    return len(regions) == one.slots and one.slot_bytes <= size <= _TOO_LARGE * one.slot_bytes


def _release(regions: list[Region]) -> None:
    for region in regions:
        region.release()
