"""Adoption: takes over memory that outlived the agent's restart; nothing is believed unhashed."""

import asyncio
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Mapping

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest
from everstep_agent.vault.snapshots.descriptor_store import RegionStore, StoredRegion
from everstep_agent.vault.snapshots.hashing import hash_region
from everstep_agent.vault.snapshots.holdings import RankMemory, Replica
from everstep_agent.vault.snapshots.manifest import extent_bytes
from everstep_agent.vault.snapshots.slots import SlotState, SlotTable, SnapshotSlot

logger = logging.getLogger(__name__)

Found = dict[str, tuple[StoredRegion, Region]]


def recover_regions(fds: Mapping[str, int], region_store: RegionStore) -> Found:
    """Return the regions that are both kept and known; close and forget the others."""
    known, found = region_store.load(), Found()
    for name in known.keys() - fds.keys():
        region_store.remove(name)
    for name, fd in fds.items():
        if not name.startswith("vault-"):
            continue
        memory = known.get(name)
        try:
            if memory is None:
                raise OSError("nothing is known of it")
            found[name] = (memory, Region.adopt(fd))
        except OSError as error:
            logger.warning("kept descriptor %s is given up: %s", name, error)
            os.close(fd)
            region_store.remove(name)
    return found


def adopt_regions(
    found: Found, vault_of: Callable[[str], JobVault | None], region_store: RegionStore
) -> None:
    """Give every job its memory back: slots at once, replicas after they have been hashed."""
    lineages: dict[str, Found] = defaultdict(dict)
    for name, (memory, region) in found.items():
        lineages[memory.lineage][name] = (memory, region)
    for lineage, kept in lineages.items():
        vault = vault_of(lineage)
        if vault is not None:
            _adopt_job(vault, kept)
            continue
        for name, (_, region) in kept.items():
            region.release()
            region_store.remove(name)


def _adopt_job(vault: JobVault, kept: Found) -> None:
    groups: dict[tuple[int, ...], Found] = defaultdict(dict)
    for name, (memory, region) in kept.items():
        vault.context.allocator.account_region(vault.requester, region)
        region.lent_writable = bool(memory.writer_pid)
        if memory.replica:
            replica = _adopt_replica(vault, name, memory, region)
            vault.tasks.start_hashing(replica, memory.generation)
        else:
            # Two processes of one rank may have had memory of the same size; the first one's is
            # retired by now.
            made = (memory.allocation, memory.writer_pid, region.size_bytes)
            group = (memory.generation, memory.rank, *made)
            groups[group][name] = (memory, region)
    for slots in groups.values():
        _adopt_slots(vault, slots)
    _verify_again(vault)


def _adopt_slots(vault: JobVault, group: Found) -> None:
    slots = {name: _slot(memory) for name, (memory, _) in group.items()}
    first, region = next(iter(group.values()))
    table = SlotTable(
        first.generation,
        first.rank,
        region.size_bytes,
        sorted(slots.values(), key=lambda slot: slot.index),
        vault.context.next_epoch,
    )
    regions = {memory.slot: region for memory, region in group.values()}
    names = {memory.slot: name for name, (memory, _) in group.items()}
    adopted = RankMemory(vault.lineage, table, regions, names)
    adopted.writer_pid, adopted.allocation = first.writer_pid, first.allocation
    adopted.slots_made = first.slots_made
    vault.holdings.ranks.append(adopted)
    for slot in list(table.slots):
        adopted.save_slot(slot, vault.context.region_store)
    over = first.generation < vault.fence or first.generation <= vault.stopped
    before = vault.current_memory(first.generation, first.rank)
    if over or len(slots) < first.slots_made:
        adopted.retire(vault.context.region_store)
    elif before is not None and before is not adopted:
        older = min(
            before, adopted, key=lambda memory: (memory.allocation, memory.table.slot_bytes)
        )
        older.retire(vault.context.region_store)


def _verify_again(vault: JobVault) -> None:
    """Hash what was committed, the steps of each rank in their order, whatever memory has them."""
    order: dict[tuple[int, int], asyncio.Lock] = {}
    committed = [
        (slot.step, memory, slot)
        for memory in vault.holdings.ranks
        for slot in memory.table.slots
        if slot.state is SlotState.COMMITTED
    ]
    for _, memory, slot in sorted(committed, key=lambda found: found[0]):
        rank = (memory.table.generation, memory.table.rank)
        memory.verify_lock = order.setdefault(rank, memory.verify_lock)
        vault.start_verification(memory, slot)


def _slot(memory: StoredRegion) -> SnapshotSlot:
    """Return a slot as far as it may be believed: the hash of what was committed is unproven."""
    committed = memory.state in (SlotState.COMMITTED.value, SlotState.VERIFIED.value)
    if not committed or not memory.entries:
        return SnapshotSlot(memory.slot)
    return SnapshotSlot(
        memory.slot,
        SlotState.COMMITTED,
        memory.epoch,
        memory.step,
        entries=memory.entries,
        extent_bytes=extent_bytes(memory.entries),
        root_hash=memory.root_hash,
    )


async def _adopt_replica(vault: JobVault, name: str, memory: StoredRegion, region: Region) -> None:
    key = CopyKey(memory.generation, memory.rank, memory.step)
    try:
        size = extent_bytes(memory.entries)
        root_hash = await vault.context.threads.run(lambda: hash_region(region, size))
    except (OSError, ValueError) as error:
        size, root_hash = 0, b""
        logger.warning("replica of %s cannot be read: %s", key, error)
    if root_hash and root_hash == memory.root_hash:
        manifest = CopyManifest(key, size, root_hash, memory.entries)
        vault.holdings.add_replica(Replica(manifest, region, name))
        vault.notify_change()
        return
    region.release()
    vault.context.region_store.remove(name)
    vault.report_bad_copy(
        f"the replica of {key} on {vault.context.node} is not what was verified before"
    )
