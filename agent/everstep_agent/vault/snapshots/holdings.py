"""Holdings: the copies of a job on this node, committed here or come from elsewhere."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest, Recoverable
from everstep_agent.vault.snapshots.descriptor_store import RegionStore, StoredRegion
from everstep_agent.vault.snapshots.manifest import ManifestCheckCache
from everstep_agent.vault.snapshots.slot_patience import SlotTurnover
from everstep_agent.vault.snapshots.slots import SlotEvent, SlotState, SlotTable, SnapshotSlot


class RankMemory:
    """The slots of one rank in one generation, with their memory."""

    def __init__(
        self, lineage: str, table: SlotTable, regions: dict[int, Region], names: dict[int, str]
    ) -> None:
        self.table = table
        self.regions = regions
        self._lineage = lineage
        self.names = names
        # How many slots were made together: after a restart, slots are given out only if all of
        # them were taken over.
        self.slots_made = len(regions)
        # Tells this memory from other memory of the rank and generation; higher for newer memory.
        self.allocation = 0
        # The manifest that was looked at last: the next one is the same, as a rule.
        self.manifest_checks = ManifestCheckCache()
        # How long slots are taken by what was committed to them.
        self.turnover = SlotTurnover()
        # The one process that was given the memory for writing.
        self.writer_pid = 0
        # Copies are verified in the order of their commits: one that is reported before an older
        # one makes the older step look as if this rank had passed it without a snapshot.
        self.verify_lock = asyncio.Lock()

    @property
    def retired(self) -> bool:
        """Return whether no slot is given out any more."""
        return self.table.retired

    def stored_region(self, slot: SnapshotSlot) -> StoredRegion:
        """Return a slot as the next agent process must know it."""
        return StoredRegion(
            lineage=self._lineage,
            generation=self.table.generation,
            rank=self.table.rank,
            slot=slot.index,
            state=slot.state.value,
            step=slot.step,
            epoch=slot.epoch,
            root_hash=slot.root_hash,
            entries=slot.entries,
            writer_pid=self.writer_pid,
            slots_made=self.slots_made,
            allocation=self.allocation,
        )

    def save_slot(self, slot: SnapshotSlot, region_store: RegionStore) -> None:
        """Bring what is stored of a slot up to date; memory that was given back stays forgotten."""
        if slot in self.table.slots:
            region_store.update(self.names[slot.index], self.stored_region(slot))

    def free_unneeded(self, recoverable: Recoverable, region_store: RegionStore) -> bool:
        """Free what the job can do without; return whether a copy went."""
        freed = self.table.free_unneeded(recoverable)
        self._close_empty(region_store)
        for slot in freed:
            self.save_slot(slot, region_store)
        return bool(freed)

    def retire(self, region_store: RegionStore) -> None:
        """Give out nothing any more, and close what has no copy in it and is not being written."""
        self.table.retired = True
        self._close_empty(region_store)

    def end_writing(self, region_store: RegionStore) -> None:
        """The process that was given slots has done with them, or is gone."""
        self.table.abandon()
        self._close_empty(region_store)

    def _close_empty(self, region_store: RegionStore) -> None:
        for slot in self.table.take_empty():
            self._close(slot, region_store)

    def is_empty(self) -> bool:
        """Return whether there is no copy in it; what was begun counts for none."""
        states = {slot.state for slot in self.table.slots}
        return states <= {SlotState.EMPTY, SlotState.WRITING}

    def live_regions(self) -> list[Region]:
        """Return the memory that is still here."""
        return [self.regions[slot.index] for slot in self.table.slots]

    def close(self, region_store: RegionStore) -> None:
        """Give all the memory back."""
        slots, self.table.slots, self.table.retired = self.table.slots, [], True
        for slot in slots:
            self._close(slot, region_store)

    def _close(self, slot: SnapshotSlot, region_store: RegionStore) -> None:
        self.regions[slot.index].release()
        region_store.remove(self.names[slot.index])


@dataclass(frozen=True, slots=True)
class Replica:
    """A copy that this node did not write."""

    manifest: CopyManifest
    region: Region
    stored_name: str


@dataclass(frozen=True, slots=True)
class PinnedCopy:
    """One verified copy, pinned: ``release`` gives it back."""

    manifest: CopyManifest
    region: Region
    replica: bool
    # Whether the slot is never written again, so that its bytes may be frozen.
    retired: bool
    release: Callable[[], None]


class Holdings:
    """All copies of one job on this node."""

    def __init__(self, region_store: RegionStore, changed: Callable[[], None]) -> None:
        self._region_store = region_store
        self._changed = changed
        self.ranks: list[RankMemory] = []
        self.replicas: dict[CopyKey, Replica] = {}

    def own_copies(self) -> Iterator[tuple[RankMemory, SnapshotSlot]]:
        """Yield the verified copies that were written here."""
        for memory in self.ranks:
            for slot in memory.table.slots:
                if slot.state is SlotState.VERIFIED:
                    yield memory, slot

    def has_own(self, key: CopyKey) -> bool:
        """Return whether there is a verified copy that was written here."""
        return any(memory.table.copy_key(slot) == key for memory, slot in self.own_copies())

    @property
    def size_bytes(self) -> int:
        """Return how much memory this is."""
        return sum(self.sizes())

    def sizes(self) -> tuple[int, int]:
        """Return how much memory the slots take, and how much the replicas."""
        slots = sum(region.size_bytes for memory in self.ranks for region in memory.live_regions())
        replicas = sum(replica.region.size_bytes for replica in self.replicas.values())
        return slots, replicas

    def slot_bytes_by_rank(self) -> list[int]:
        """Return how much memory each rank has that has slots to write to."""
        ranks = (memory for memory in self.ranks if not memory.retired)
        return [sum(region.size_bytes for region in memory.live_regions()) for memory in ranks]

    def manifests(self) -> list[tuple[CopyManifest, bool]]:
        """Return all verified copies, and whether each is a replica."""
        own = [(memory.table.manifest_of(slot), False) for memory, slot in self.own_copies()]
        return own + [(replica.manifest, True) for replica in self.replicas.values()]

    def pin(self, key: CopyKey) -> PinnedCopy | None:
        """Return a verified copy that stays as it is until it is released; own memory first."""
        for memory, slot in self.own_copies():
            if memory.table.copy_key(slot) == key:
                return self._pin_slot(memory, slot)
        replica = self.replicas.get(key)
        if replica is None:
            return None
        return PinnedCopy(
            replica.manifest, replica.region.retain(), True, True, replica.region.release
        )

    def _pin_slot(self, memory: RankMemory, slot: SnapshotSlot) -> PinnedCopy:
        region = memory.regions[slot.index].retain()
        slot.pins += 1

        def release() -> None:
            slot.pins -= 1
            region.release()
            self._changed()

        return PinnedCopy(memory.table.manifest_of(slot), region, False, memory.retired, release)

    def discard(self, pinned: PinnedCopy) -> None:
        """Forget a copy whose bytes are not what they were."""
        if pinned.replica:
            replica = self.replicas.get(pinned.manifest.key)
            if replica is not None and replica.region is pinned.region:
                self._drop_replica(pinned.manifest.key)
            return
        for memory, slot in self.own_copies():
            if memory.table.copy_key(slot) == pinned.manifest.key:
                slot.apply(SlotEvent.FOUND_BAD)
                memory.save_slot(slot, self._region_store)

    def add_replica(self, replica: Replica) -> None:
        """Keep a verified copy that came from elsewhere."""
        self._drop_replica(replica.manifest.key)
        self.replicas[replica.manifest.key] = replica

    def free_unneeded(self, recoverable: Recoverable) -> None:
        """Free what the job can do without."""
        for memory in self.ranks:
            memory.free_unneeded(recoverable, self._region_store)
        self.ranks = [memory for memory in self.ranks if memory.table.slots]
        for key in [key for key in self.replicas if recoverable.frees(key, replica=True)]:
            self._drop_replica(key)

    def close(self) -> None:
        """Give all the memory back."""
        for memory in self.ranks:
            memory.close(self._region_store)
        self.ranks.clear()
        for key in list(self.replicas):
            self._drop_replica(key)

    def _drop_replica(self, key: CopyKey) -> None:
        replica = self.replicas.pop(key, None)
        if replica is not None:
            replica.region.release()
            self._region_store.remove(replica.stored_name)
