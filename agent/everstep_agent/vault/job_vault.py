"""Job vault: a job's snapshots on this node: slots of its ranks, replicas, running transfers."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from everstep_agent.concurrency.change_signal import ChangeSignal
from everstep_agent.concurrency.generation_tasks import GenerationTasks, Spawn
from everstep_agent.concurrency.time_slices import run_in_slices
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
from everstep_agent.vault.snapshots.slot_patience import summarize_turnover
from everstep_agent.vault.snapshots.slots import Grant, SlotState, SnapshotSlot, told_as_passed
from everstep_agent.vault.transfer.messages import AllSteps, Refusal, TellSteps
from everstep_agent.vault.transfer.receive_buffers import ReceiveBuffers
from everstep_agent.vault.vault_context import VaultContext
from everstep_agent.vault.verification import CopyVerifier
from everstep_common.rank_messages import Commit
from everstep_common.reports import PassedStep, Turnover

# How many bad copies a report lists: broken memory must not make it grow without end.
_BAD_COPIES_MAX = 32
# How long a step waits for a slot while the controller is away: a job on a single node then frees
# its older steps itself, in the next turns of the loop.
_LAST_CHANCE_S = 0.05
# Slots that fill up within this time while members free them among themselves are taken by fewer
# steps: their words travel for up to three seconds, in the largest jobs.
_WORDS_S = 4.0


@dataclass(frozen=True, slots=True)
class SlotWait:
    """Limit of a wait for a slot; ``hopeless_reason`` says why none gets free now, or ""."""

    for_s: float
    hopeless_reason: Callable[[], str]


class JobVault:
    """All memory of one job here. ``on_change`` hears of everything that a report would tell."""

    def __init__(
        self, context: VaultContext, job: str, spawn: Spawn, on_change: Callable[[], None]
    ) -> None:
        self.context = context
        # The job's name, for its folder in storage, its share of memory, and people.
        self.job = job
        # What other agents, the controller and the next agent process call its copies.
        self.lineage = job
        self.uid = -1
        self.transfer_key = b""
        self.recoverable = Recoverable()
        self.target: ReplicaTarget | None = None
        # The member to tell the own steps while no controller is there, and what answers others.
        self.collector: ReplicaTarget | None = None
        self.hear_member: Callable[[TellSteps], AllSteps | Refusal] = _hear_nobody
        # The newest generation known; requests of an older one are refused.
        self.fence = 0
        # The newest stopped generation: nothing of it and of older ones is accepted any more.
        self.stopped = 0
        # The newest generation of which all accepted copies are verified as well.
        self.settled = 0
        # The copies that the newest generation began from.
        self.initial_copies = InitialCopies()
        self.cadence = Cadence()
        self.step_hold: StepHold | None = None
        # Another member's agent is away: no newer step becomes recoverable, and no slot free.
        self.member_away = False
        # Further slots for each rank where snapshots go to storage: slow storage must cost no step.
        self.spare_slots = 0
        # Whether the job begins here without a promise of memory: what others were promised is
        # then not given to it.
        self.after_promises = False
        # The memory that copies arrive in, and the job's files when it has storage.
        self.receive_buffers = ReceiveBuffers(
            context.allocator, lambda: self.requester, context.partial_kept_s
        )
        self.files: FileTier | None = None
        self.preallocated_slots = PreallocatedSlots(context)
        self.layouts = LayoutCache()
        self.change_signal = ChangeSignal()
        self.bad_copies: list[str] = []
        # Whether memory was too short for the replicas of more than one member, which is reported.
        self.replicas_short = False
        self.holdings = Holdings(context.region_store, self.notify_change)
        self.tasks = GenerationTasks(job, spawn)
        self.verifier = CopyVerifier(
            context, self.holdings, lambda: self.requester, self.report_bad_copy
        )
        self._on_change = on_change
        # When a slot was given out last.
        self._begun_s = float("-inf")

    @property
    def requester(self) -> Requester:
        """Return who asks for the job's memory."""
        return Requester(self.uid, self.job)

    def notify_change(self) -> None:
        """Something was committed, verified, freed or found bad."""
        self.change_signal.notify()
        self._on_change()

    def report_bad_copy(self, sentence: str) -> None:
        """Report a copy that is not what it was."""
        self.context.counters.bad_copies += 1
        self.bad_copies = [*self.bad_copies, sentence][-_BAD_COPIES_MAX:]
        self.notify_change()

    # --- what the controller wants -----------------------------------------------------------

    def begin_generation(
        self, generation: int, initial_copies: InitialCopies | None = None
    ) -> None:
        """A newer generation exists: the memory of older ones is only read from now on."""
        if generation > self.fence:
            # Reset: the controller names the new generation's replica target and initial copies.
            self.fence, self.initial_copies = generation, InitialCopies()
            self.target = self.collector = None
            self.preallocated_slots.end_generation(generation - 1)
        if initial_copies is not None and generation == self.fence:
            self.initial_copies = initial_copies
        for memory in self.holdings.ranks:
            if memory.table.generation < self.fence and not memory.retired:
                memory.retire(self.context.region_store)
        self.notify_change()

    def apply_directive(self, recoverable: Recoverable, target: ReplicaTarget | None) -> None:
        """Free what is not needed, and replicate to ``target``. An older generation is ignored."""
        if recoverable.generation < self.fence:
            return
        self.begin_generation(recoverable.generation)
        self.recoverable, self.target = recoverable, target
        self._free_unneeded()
        self.receive_buffers.drop_partial(partial(recoverable.frees, replica=True))
        self.notify_change()

    async def settle(self, generation: int, timeout_s: float) -> None:
        """Take nothing more of a generation, and wait until what was taken is verified."""
        self.stopped = max(self.stopped, generation)
        for memory in self.holdings.ranks:
            if memory.table.generation <= generation and not memory.retired:
                memory.retire(self.context.region_store)
        self.change_signal.notify()
        self.preallocated_slots.end_generation(generation)
        await self.tasks.wait_finished(generation, timeout_s)
        self.settled = max(self.settled, generation)
        self.notify_change()

    def close(self) -> None:
        """The job is over: give all its memory back."""
        self.tasks.cancel_transfers()
        self.holdings.close()
        self.release_idle_memory()
        self.notify_change()

    def drop_copies(self) -> None:
        """Give back the copies of generations before, if there are any."""
        if self.holdings.size_bytes:
            self.close()

    def release_idle_memory(self) -> None:
        """Give back the memory that only waits for a use."""
        self.receive_buffers.release_idle()
        self.preallocated_slots.release()
        self.layouts.clear()

    # --- slots -------------------------------------------------------------------------------

    def current_memory(self, generation: int, rank: int) -> RankMemory | None:
        """Return the memory that a rank writes to."""
        for memory in self.holdings.ranks:
            table = memory.table
            if not memory.retired and (table.generation, table.rank) == (generation, rank):
                return memory
        return None

    async def reserve_slots(self, owner: SlotOwner, size_bytes: int) -> RankMemory:
        """Return memory for a rank, the same as before where it suffices.

        Raises MemoryShortError.
        """
        before = self.current_memory(owner.generation, owner.rank)
        if (
            before is not None
            and before.table.slot_bytes >= size_bytes
            and before.writer_pid == owner.pid
        ):
            return before
        made = await self.preallocated_slots.take_slots(owner, size_bytes)
        if not made:
            wanted = self.slot_request(size_bytes)
            if before is not None and before.is_empty():
                await retire_if_needed(self.context, before, wanted)
            made = await allocate_slots(self.context, wanted, owner.generation, owner.rank)
        memory = await store_slots(self.context, self.lineage, owner, made)
        if before is not None:
            memory.verify_lock = before.verify_lock
            before.retire(self.context.region_store)
        if owner.generation < self.fence or owner.generation <= self.stopped:
            memory.close(self.context.region_store)
            raise MemoryShortError(f"generation {owner.generation} was stopped meanwhile")
        self.holdings.ranks.append(memory)
        return memory

    def slot_request(self, size_bytes: int) -> SlotRequest:
        """Return the slots that a rank is to have for a state of this size."""
        slots = self.context.slots_per_rank + self.spare_slots
        older = any(memory.retired for memory in self.holdings.ranks)
        least = min(slots, SLOTS_MIN) if older else slots
        after = self.after_promises and not older
        return SlotRequest(self.job, self.uid, slots, least, size_bytes, after)

    async def acquire_slot(self, memory: RankMemory, step: int, wait: SlotWait) -> Grant | str:
        """Give out a slot, waiting for one; a sentence when there was none in time."""
        if refusal := memory.table.refusal(step):
            return refusal
        try:
            async with asyncio.timeout(wait.for_s) as limit:
                while not memory.retired:
                    grant = memory.table.begin_step(step, self.recoverable)
                    if grant is not None:
                        self._record_begun(memory, grant)
                        return grant
                    # With all slots full nothing changes any more. Who frees them while the
                    # controller is away may not have known yet that it is when the last one was.
                    self._on_change()
                    if wait.hopeless_reason():
                        _shorten(limit)
                    await self.change_signal.wait()
        except TimeoutError:
            self.context.counters.skipped += 1
            away = wait.hopeless_reason()
            why = f"while {away}" if away else f"within {wait.for_s:.3g} s"
            return f"no slot was free {why}: {memory.table.describe_occupancy(self.recoverable)}"
        return f"generation {memory.table.generation} was stopped"

    def grant_ahead(self, memory: RankMemory, step: int) -> Grant | None:
        """Give out a slot for a later step, if one is free now; it is being written from now on."""
        grant = memory.table.grant_ahead(step, self.recoverable)
        if grant is not None:
            self._record_begun(memory, grant)
        return grant

    def leave_out(self, memory: RankMemory, step: int) -> None:
        """A rank has gone past a step without a copy: nobody needs to keep that one for it."""
        if memory.table.leave_out(step):
            self._on_change()

    def thin_out(self, step: int) -> None:
        """Take half as many steps after this one, which found no slot; the next directive ends it.

        Not where slots are taken slowly: then it is not for the steps that none gets free.
        """
        if asyncio.get_running_loop().time() - self._begun_s < _WORDS_S:
            self.cadence = self.cadence.thinned(self.fence, step)

    def _record_begun(self, memory: RankMemory, grant: Grant) -> None:
        self._begun_s = asyncio.get_running_loop().time()
        slot = next(slot for slot in memory.table.slots if slot.index == grant.slot)
        memory.save_slot(slot, self.context.region_store)
        self._on_change()

    async def commit(self, memory: RankMemory, request: Commit) -> str | None:
        """Take over a copy; a sentence, and nothing changed, when it is not the one begun."""
        checked = await run_in_slices(
            memory.manifest_checks.check(request.entries, memory.table.slot_bytes)
        )
        await self.context.region_store.save_manifest(request.entries)
        if memory.retired:
            return f"generation {memory.table.generation} was stopped; its snapshots are refused"
        slot = memory.table.commit(request, checked)
        if isinstance(slot, str):
            return slot
        self.context.counters.committed += 1
        memory.turnover.record_commit(slot.epoch, asyncio.get_running_loop().time())
        memory.save_slot(slot, self.context.region_store)
        self.start_verification(memory, slot)
        return None

    def start_verification(self, memory: RankMemory, slot: SnapshotSlot) -> None:
        """Hash a committed copy in the background; with a hash from before, it must be the same."""
        self.tasks.start_hashing(self._verify(memory, slot), memory.table.generation)

    def replica_refusal(self, key: CopyKey) -> str | None:
        """Return why a replica is not taken, or None."""
        over = key.generation < self.fence or key.generation <= self.stopped
        if over and key not in self.initial_copies.keys:
            return f"generation {key.generation} is over here"
        if self.recoverable.frees(key, replica=True):
            return f"{key} is not needed any more"
        return None

    async def keep_replica(self, manifest: CopyManifest, region: Region) -> None:
        """Keep a verified copy that came from elsewhere; takes over the region."""
        key, region_store = manifest.key, self.context.region_store
        stored = StoredRegion(
            lineage=self.lineage,
            generation=key.generation,
            rank=key.rank,
            slot=-1,
            state=SlotState.VERIFIED.value,
            step=key.step,
            root_hash=manifest.root_hash,
            entries=manifest.entries,
            replica=True,
        )
        try:
            await run_in_slices(self.layouts.learn_layout(manifest))
            await region_store.save_manifest(manifest.entries)
            name = await region_store.add(region.fd, stored, self.context.threads)
        except BaseException:
            region.release()
            raise
        self.holdings.add_replica(Replica(manifest, region, name))
        self.notify_change()

    async def _verify(self, memory: RankMemory, slot: SnapshotSlot) -> None:
        key = memory.table.copy_key(slot)
        if problem := await self.verifier.verify_slot(memory, slot):
            self.report_bad_copy(f"{key} on {self.context.node} {problem}")
        if slot.state is SlotState.VERIFIED and memory.table.copy_key(slot) == key:
            await run_in_slices(self.layouts.learn_layout(memory.table.manifest_of(slot)))
        memory.save_slot(slot, self.context.region_store)
        self._free_unneeded()
        self.notify_change()

    def turnover(self) -> Turnover | None:
        """Return how long slots are taken here; None: none has become free again yet."""
        ranks = [memory for memory in self.holdings.ranks if not memory.retired]
        slots = min((len(memory.table.slots) for memory in ranks), default=0)
        return summarize_turnover(slots, (memory.turnover for memory in ranks))

    def passed_steps(self) -> tuple[PassedStep, ...]:
        """Return which ranks have left out a newer step than their copies are of.

        None while another member is away: then no step becomes one that all have, and each is left
        out.
        """
        if self.member_away:
            return ()
        tables = [m.table for m in self.holdings.ranks if m.table.generation == self.fence]
        told = []
        for rank in sorted({table.rank for table in tables if table.left_out >= 0}):
            own = [table for table in tables if table.rank == rank]
            left_out = max(table.left_out for table in own)
            step = told_as_passed(left_out, [slot for table in own for slot in table.slots])
            if step is not None:
                told.append(PassedStep(self.fence, rank, step))
        return tuple(told)

    def _free_unneeded(self) -> None:
        self.holdings.free_unneeded(self.recoverable)
        now_s = asyncio.get_running_loop().time()
        for memory in self.holdings.ranks:
            memory.turnover.record_slots(memory.table.slots, now_s)


def _hear_nobody(_: TellSteps) -> Refusal:
    return Refusal("no generation runs here")


def _shorten(limit: asyncio.Timeout) -> None:
    soon = asyncio.get_running_loop().time() + _LAST_CHANCE_S
    ends = limit.when()
    limit.reschedule(soon if ends is None else min(ends, soon))
