"""The snapshots of one job on this node: slots of its ranks, replicas of others, what is owed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from everstep_agent.concurrency.change_signal import ChangeSignal
from everstep_agent.concurrency.generation_tasks import GenerationTasks, Spawn
from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.storage.persist_state import PersistState
from everstep_agent.vault.memory.allocator import MemoryShortError, Requester
from everstep_agent.vault.memory.capacity import SLOTS_MIN
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.slot_allocation import (
    SlotOwner,
    SlotRequest,
    allocate_slots,
    retire_if_needed,
    store_slots,
)
from everstep_agent.vault.slot_preallocation import PreallocatedSlots
from everstep_agent.vault.snapshots.cadence import Cadence, StepHold
from everstep_agent.vault.snapshots.copies import (
    CopyKey,
    CopyManifest,
    InitialCopies,
    LayoutCache,
    Recoverable,
    ReplicaTarget,
)
from everstep_agent.vault.snapshots.descriptor_store import StoredRegion
from everstep_agent.vault.snapshots.file_tier import FileTier
from everstep_agent.vault.snapshots.holdings import Holdings, RankMemory, Replica
from everstep_agent.vault.snapshots.slots import Grant, SlotState, SnapshotSlot
from everstep_agent.vault.transfer.receive_buffers import ReceiveBuffers
from everstep_agent.vault.vault_context import VaultContext
from everstep_agent.vault.verification import CopyVerifier
from everstep_common.trainer_messages import Commit

# Sentences on bad copies that a report carries; a broken memory must not make it grow without end.
_BAD_COPIES_MAX = 32


# While the controller is away a job on one node frees its older steps itself, in the next turns of
# the loop; one that is not given a slot by then is given none.
_LAST_CHANCE_S = 0.05


@dataclass(frozen=True, slots=True)
class SlotWait:
    """How long to wait; ``in_vain``: the controller, whose word frees slots, is away."""

    for_s: float
    in_vain: Callable[[], bool]


class JobVault:
    """All memory of one job here. ``on_change`` hears of everything that a report would tell."""

    def __init__(
        self, site: VaultContext, job: str, spawn: Spawn, on_change: Callable[[], None]
    ) -> None:
        self.site = site
        self.job = job
        self.uid = -1
        self.transfer_key = b""
        self.recoverable = Recoverable()
        self.target: ReplicaTarget | None = None
        # Newest generation known; what belongs to an older one is refused.
        self.fence = 0
        # Of this generation and older ones nothing is taken any more …
        self.stopped = 0
        # … and everything that was taken is verified.
        self.settled = 0
        # What the newest generation began from.
        self.carried = InitialCopies()
        self.cadence = Cadence()
        self.hold: StepHold | None = None
        # More slots for each rank where snapshots go to storage: a slow one must cost no step.
        self.spare_slots = 0
        # It begins here and was promised nothing: what others were promised is not for it.
        self.after_promises = False
        # Where copies arrive, and the job's files when it has storage.
        self.arrivals = self._new_arrivals()
        self.files: FileTier | None = None
        self.slots_ahead = PreallocatedSlots(site)
        self.layouts = LayoutCache()
        # What of it is to be brought to storage, and what became of that.
        self.wishes = PersistState()
        self.bell = ChangeSignal()
        self.bad_copies: list[str] = []
        # Memory was too short for the replicas of more than one member; the controller is told.
        self.replicas_short = False
        self.holdings = Holdings(site.shelf, self.changed)
        self.ongoing = GenerationTasks(job, spawn)
        self.verifier = CopyVerifier(site, self.holdings, lambda: self.asker, self.bad)
        self._on_change = on_change

    @property
    def asker(self) -> Requester:
        """Return who asks for the job's memory."""
        return Requester(self.uid, self.job)

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

    def begin_generation(self, generation: int, carried: InitialCopies | None = None) -> None:
        """A newer generation exists: the memory of older ones is only read from now on."""
        if generation > self.fence:
            # Who keeps the replicas of this one, and what it begins from, is said anew.
            self.fence, self.target, self.carried = generation, None, InitialCopies()
            self.slots_ahead.over(generation - 1)
        if carried is not None and generation == self.fence:
            self.carried = carried
        for memory in self.holdings.ranks:
            if memory.table.generation < self.fence and not memory.retired:
                memory.retire(self.site.shelf)
        self.changed()

    def direct(self, recoverable: Recoverable, target: ReplicaTarget | None) -> None:
        """Free what is not needed, and replicate to ``target``. An older generation is ignored."""
        if recoverable.generation < self.fence:
            return
        self.begin_generation(recoverable.generation)
        self.recoverable, self.target = recoverable, target
        self.holdings.sweep(recoverable)
        self.arrivals.prune(partial(recoverable.frees, replica=True))
        self.changed()

    async def settle(self, generation: int, timeout_s: float) -> None:
        """Take nothing more of a generation, and wait until what was taken is verified."""
        self.stopped = max(self.stopped, generation)
        for memory in self.holdings.ranks:
            if memory.table.generation <= generation and not memory.retired:
                memory.retire(self.site.shelf)
        self.bell.ring()
        self.slots_ahead.over(generation)
        await self.ongoing.finished(generation, timeout_s)
        self.settled = max(self.settled, generation)
        self.changed()

    def close(self) -> None:
        """The job is over: give all its memory back."""
        self.ongoing.give_up()
        self.holdings.close()
        self.release_ready()
        self.changed()

    def release_ready(self) -> None:
        """Give back the memory that only waits for a use."""
        self.arrivals.release()
        self.slots_ahead.release()
        self.layouts.forget()

    def forget(self) -> None:
        """Another job has the same name: nothing of the one before counts."""
        self.close()
        self.arrivals.end()
        self.arrivals = self._new_arrivals()
        self.fence = self.stopped = self.settled = 0
        self.recoverable, self.target, self.carried = Recoverable(), None, InitialCopies()
        self.cadence, self.hold = Cadence(), None
        self.replicas_short = False
        self.wishes.forget()

    # --- slots -------------------------------------------------------------------------------

    def current(self, generation: int, rank: int) -> RankMemory | None:
        """Return the memory that a rank writes to."""
        for memory in self.holdings.ranks:
            table = memory.table
            if not memory.retired and (table.generation, table.rank) == (generation, rank):
                return memory
        return None

    async def reserve(self, owner: SlotOwner, size_bytes: int) -> RankMemory:
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
        made = await self.slots_ahead.take(owner, size_bytes)
        if not made:
            wanted = self.wanted(size_bytes)
            if before is not None and before.empty():
                await retire_if_needed(self.site, before, wanted)
            made = await allocate_slots(self.site, wanted, owner.generation, owner.rank)
        memory = await store_slots(self.site, self.job, owner, made)
        if before is not None:
            memory.verifying = before.verifying
            before.retire(self.site.shelf)
        if owner.generation < self.fence or owner.generation <= self.stopped:
            memory.close(self.site.shelf)
            raise MemoryShortError(f"generation {owner.generation} was stopped meanwhile")
        self.holdings.ranks.append(memory)
        return memory

    def wanted(self, size_bytes: int) -> SlotRequest:
        """Return the slots that a rank is to have for a state of this size."""
        slots = self.site.slots_per_rank + self.spare_slots
        older = any(memory.retired for memory in self.holdings.ranks)
        least = min(slots, SLOTS_MIN) if older else slots
        after = self.after_promises and not older
        return SlotRequest(self.job, self.uid, slots, least, size_bytes, after)

    async def acquire_slot(self, memory: RankMemory, step: int, wait: SlotWait) -> Grant | str:
        """Give out a slot, waiting for one; a sentence when there was none in time."""
        if memory.table.holds(step):
            return f"step {step} is in the vault already"
        try:
            async with asyncio.timeout(wait.for_s) as limit:
                while not memory.retired:
                    grant = memory.table.begin(step, self.recoverable)
                    if grant is not None:
                        self._begun(memory, grant)
                        return grant
                    # With all slots full nothing changes any more. Who frees them while the
                    # controller is away may not have known yet that it is when the last one was.
                    self._on_change()
                    if wait.in_vain():
                        _shorten(limit)
                    await self.bell.wait()
        except TimeoutError:
            self.site.counts.skipped += 1
            why = "while the controller is away" if wait.in_vain() else f"within {wait.for_s:g} s"
            return f"no slot was free {why}: {memory.table.occupancy(self.recoverable)}"
        return f"generation {memory.table.generation} was stopped"

    def _begun(self, memory: RankMemory, grant: Grant) -> None:
        slot = next(slot for slot in memory.table.slots if slot.index == grant.slot)
        memory.remember(slot, self.site.shelf)
        self._on_change()

    async def commit(self, memory: RankMemory, request: Commit) -> str | None:
        """Take over a copy; a sentence, and nothing changed, when it is not the one begun."""
        checked = await run_in_slices(memory.checks.of(request.entries, memory.table.slot_bytes))
        await self.site.shelf.keep(request.entries)
        if memory.retired:
            return f"generation {memory.table.generation} was stopped; its snapshots are refused"
        slot = memory.table.commit(request, checked)
        if isinstance(slot, str):
            return slot
        self.site.counts.committed += 1
        memory.remember(slot, self.site.shelf)
        self.verify(memory, slot)
        return None

    def verify(self, memory: RankMemory, slot: SnapshotSlot) -> None:
        """Hash a committed copy in the background; with a hash from before, it must be the same."""
        self.ongoing.hashes(self._verify(memory, slot), memory.table.generation)

    def refuses(self, key: CopyKey) -> str | None:
        """Return why a replica is not taken, or None."""
        over = key.generation < self.fence or key.generation <= self.stopped
        if over and key not in self.carried.keys:
            return f"generation {key.generation} is over here"
        if self.recoverable.frees(key, replica=True):
            return f"{key} is not needed any more"
        return None

    async def keep_replica(self, facts: CopyManifest, region: Region) -> None:
        """Keep a verified copy that came from elsewhere; takes over the region."""
        key, shelf = facts.key, self.site.shelf
        shelved = StoredRegion(
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
            await run_in_slices(self.layouts.learn(facts))
            await shelf.keep(facts.entries)
            name = await shelf.put(region.fd, shelved, self.site.workers)
        except BaseException:
            region.drop()
            raise
        self.holdings.add_replica(Replica(facts, region, name))
        self.changed()

    def _new_arrivals(self) -> ReceiveBuffers:
        return ReceiveBuffers(self.site.allocator, lambda: self.asker, self.site.cut_kept_s)

    async def _verify(self, memory: RankMemory, slot: SnapshotSlot) -> None:
        key = memory.table.key(slot)
        if problem := await self.verifier.verify_slot(memory, slot):
            self.bad(f"{key} on {self.site.node} {problem}")
        if slot.state is SlotState.VERIFIED and memory.table.key(slot) == key:
            await run_in_slices(self.layouts.learn(memory.table.facts(slot)))
        memory.remember(slot, self.site.shelf)
        self.holdings.sweep(self.recoverable)
        self.changed()


def _shorten(limit: asyncio.Timeout) -> None:
    soon = asyncio.get_running_loop().time() + _LAST_CHANCE_S
    ends = limit.when()
    limit.reschedule(soon if ends is None else min(ends, soon))
