"""The snapshots of one job on this node: slots of its ranks, replicas of others, what is owed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from everstep_agent.vault.allocator import MemoryShortError
from everstep_agent.vault.bell import Bell
from everstep_agent.vault.copies import (
    Carried,
    CopyFacts,
    CopyKey,
    Recoverable,
    extent_bytes,
)
from everstep_agent.vault.hashing import hash_region
from everstep_agent.vault.held import Holdings, RankMemory, Replica
from everstep_agent.vault.memory import Region
from everstep_agent.vault.ongoing import Ongoing, Spawn
from everstep_agent.vault.reserve import Owner, new_memory
from everstep_agent.vault.shelf import ShelvedMemory
from everstep_agent.vault.site import Site
from everstep_agent.vault.slots import Grant, Slot, SlotEvent, SlotState
from everstep_common.trainer_messages import Commit

# Sentences on bad copies that a report carries; a broken memory must not make it grow without end.
_BAD_COPIES_MAX = 32


@dataclass(frozen=True, slots=True)
class Target:
    """Where the own copies are replicated to."""

    node: str
    address: str


class JobVault:
    """All memory of one job here. ``on_change`` hears of everything that a report would tell."""

    def __init__(self, site: Site, job: str, spawn: Spawn, on_change: Callable[[], None]) -> None:
        self.site = site
        self.job = job
        self.uid = -1
        self.transfer_key = b""
        self.recoverable = Recoverable()
        self.target: Target | None = None
        # Newest generation known; what belongs to an older one is refused.
        self.fence = 0
        # Of this generation and older ones nothing is taken any more …
        self.stopped = 0
        # … and everything that was taken is verified.
        self.settled = 0
        # What the newest generation began from.
        self.carried = Carried()
        self.bell = Bell()
        self.bad_copies: list[str] = []
        self.holdings = Holdings(site.shelf, self.changed)
        self.ongoing = Ongoing(job, spawn)
        self._on_change = on_change

    def changed(self) -> None:
        """Something was committed, verified, freed or found bad."""
        self.bell.ring()
        self._on_change()

    def bad(self, sentence: str) -> None:
        """Report a copy that is not what it was."""
        self.site.counts.bad_copies += 1
        self.bad_copies = [*self.bad_copies, sentence][-_BAD_COPIES_MAX:]
        self.changed()

    # --- what the controller wants -----------------------------------------------------------

    def begin_generation(self, generation: int, carried: Carried | None = None) -> None:
        """A newer generation exists: the memory of older ones is only read from now on."""
        if generation > self.fence:
            # Who keeps the replicas of this one, and what it begins from, is said anew.
            self.fence, self.target, self.carried = generation, None, Carried()
        if carried is not None and generation == self.fence:
            self.carried = carried
        for memory in self.holdings.ranks:
            if memory.table.generation < self.fence and not memory.retired:
                memory.retire(self.site.shelf)
        self.changed()

    def direct(self, recoverable: Recoverable, target: Target | None) -> None:
        """Free what is not needed, and replicate to ``target``. An older generation is ignored."""
        if recoverable.generation < self.fence:
            return
        self.begin_generation(recoverable.generation)
        self.recoverable, self.target = recoverable, target
        self.holdings.sweep(recoverable)
        self.changed()

    async def settle(self, generation: int, timeout_s: float) -> None:
        """Take nothing more of a generation, and wait until what was taken is verified."""
        self.stopped = max(self.stopped, generation)
        for memory in self.holdings.ranks:
            if memory.table.generation <= generation and not memory.retired:
                memory.retire(self.site.shelf)
        self.bell.ring()
        await self.ongoing.finished(generation, timeout_s)
        self.settled = max(self.settled, generation)
        self.changed()

    def close(self) -> None:
        """The job is over: give all its memory back."""
        self.ongoing.give_up()
        self.holdings.close()
        self.changed()

    def forget(self) -> None:
        """Another job has the same name: nothing of the one before counts."""
        self.close()
        self.fence = self.stopped = self.settled = 0
        self.recoverable, self.target, self.carried = Recoverable(), None, Carried()

    # --- slots -------------------------------------------------------------------------------

    def current(self, generation: int, rank: int) -> RankMemory | None:
        """Return the memory that a rank writes to."""
        for memory in self.holdings.ranks:
            table = memory.table
            if not memory.retired and (table.generation, table.rank) == (generation, rank):
                return memory
        return None

    async def reserve(self, owner: Owner, size_bytes: int) -> RankMemory:
        """Return memory for a rank, the same as before where it suffices.

        Raises MemoryShortError.
        """
        before = self.current(owner.generation, owner.rank)
        if (
            before is not None
            and before.table.slot_bytes >= size_bytes
            and before.holder == owner.pid
        ):
            return before
        memory = await new_memory(self.site, self.job, self.uid, owner, size_bytes)
        if before is not None:
            memory.verifying = before.verifying
            before.retire(self.site.shelf)
        if owner.generation < self.fence or owner.generation <= self.stopped:
            memory.close(self.site.shelf)
            raise MemoryShortError(f"generation {owner.generation} was stopped meanwhile")
        self.holdings.ranks.append(memory)
        return memory

    async def begin(self, memory: RankMemory, step: int, wait_s: float) -> Grant | str:
        """Give out a slot, waiting for one; a sentence when there was none in time."""
        if memory.table.holds(step):
            return f"step {step} is in the vault already"
        try:
            async with asyncio.timeout(wait_s):
                while not memory.retired:
                    grant = memory.table.begin(step, self.recoverable)
                    if grant is not None:
                        self._remember_begun(memory, grant)
                        return grant
                    await self.bell.wait()
        except TimeoutError:
            self.site.counts.skipped += 1
            occupancy = memory.table.occupancy(self.recoverable)
            return f"no slot was free within {wait_s:g} s: {occupancy}"
        return f"generation {memory.table.generation} was stopped"

    def commit(self, memory: RankMemory, request: Commit) -> str | None:
        """Take over a copy; a sentence, and nothing changed, when it is not the one begun."""
        if memory.retired:
            return f"generation {memory.table.generation} was stopped; its snapshots are refused"
        slot = memory.table.commit(request)
        if isinstance(slot, str):
            return slot
        self.site.counts.committed += 1
        memory.remember(slot, self.site.shelf)
        self.verify(memory, slot)
        return None

    def verify(self, memory: RankMemory, slot: Slot) -> None:
        """Hash a committed copy in the background; with a hash from before, it must be the same."""
        self.ongoing.hashes(self._verify(memory, slot), memory.table.generation)

    async def keep_replica(self, facts: CopyFacts, region: Region) -> None:
        """Keep a verified copy that came from elsewhere; takes over the region."""
        key = facts.key
        shelved = ShelvedMemory(
            job=self.job,
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
            name = await self.site.shelf.put(region.fd, shelved, self.site.workers)
        except BaseException:
            region.drop()
            raise
        self.holdings.add_replica(Replica(facts, region, name))
        self.changed()

    def refuses(self, key: CopyKey) -> str | None:
        """Return why a replica is not taken, or None."""
        over = key.generation < self.fence or key.generation <= self.stopped
        if over and key not in self.carried.keys:
            return f"generation {key.generation} is over here"
        if self.recoverable.frees(key):
            return f"{key} is not needed any more"
        return None

    def _remember_begun(self, memory: RankMemory, grant: Grant) -> None:
        slot = next(slot for slot in memory.table.slots if slot.index == grant.slot)
        memory.remember(slot, self.site.shelf)
        self._on_change()

    async def _verify(self, memory: RankMemory, slot: Slot) -> None:
        epoch, key, expected = slot.epoch, memory.table.key(slot), slot.root_hash
        region = memory.regions[slot.index].hold()
        size = extent_bytes(slot.entries)
        try:
            async with memory.verifying:
                root_hash = await self.site.workers.run(lambda: hash_region(region, size))
        except (OSError, ValueError) as error:
            slot.apply(SlotEvent.FOUND_BAD)
            self.bad(f"{key} on {self.site.node} could not be read: {error}")
        else:
            if expected and root_hash != expected:
                slot.apply(SlotEvent.FOUND_BAD)
                self.bad(f"{key} on {self.site.node} is not what was verified before")
            else:
                memory.table.verified(slot, epoch, root_hash)
        finally:
            region.drop()
        memory.remember(slot, self.site.shelf)
        self.holdings.sweep(self.recoverable)
        self.changed()
