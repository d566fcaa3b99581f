"""Job storage: which steps of a job are to be stored from this node, by whom, and what is there."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.storage.absent_ranks import AbsentRanks, wanted_of
from everstep_agent.storage.formats.records import Beginning, StepKey
from everstep_agent.storage.persist_state import PersistState
from everstep_agent.storage.persister import Persister, StorageTarget
from everstep_agent.storage.publisher import Publisher
from everstep_agent.storage.storage_tier import StorageTier
from everstep_agent.storage.worker.messages import (
    ListSteps,
    RefusalKind,
    StepListing,
    StorageLocation,
)
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import JobUser, StorageError, StorageRefusedError
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.snapshots.copies import Recoverable
from everstep_common.log_limit import once_a_minute
from everstep_common.orders import VaultDirective
from everstep_common.reports import Storage

logger = logging.getLogger(__name__)
_PROGRESS_S = 2.0
# How often the stored steps are listed, which costs a shared file system a query for each file of
# some steps: less and less often while nothing new is found.
_LOOK_AGAIN_S = 5.0
_LOOK_AGAIN_S_MAX = 40.0
# Of so many of the newest generations it is known how they began: a file of the one before may
# still be on its way.
_BEGINNINGS_MAX = 4


@dataclass(frozen=True, slots=True)
class StorageDeadlines:
    """Deadlines of storage: ``stall_s`` without a byte, ``list_s`` to say at first what is there.

    ``unseen_s``: until a file of another node is seen.
    """

    stall_s: float
    list_s: float
    unseen_s: float
    at_once: int


class ListingPatience:
    """How long a listing may take: it begins anew each time, so it gets twice as long each time."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self.limit_s = self._first_s = first_s
        self._longest_s = max(first_s, longest_s)

    def exceed(self) -> None:
        """It was not there in time."""
        self.limit_s = min(2 * self.limit_s, self._longest_s)

    def reset(self) -> None:
        """It was there, or another place is listed."""
        self.limit_s = self._first_s


class JobStorage:
    """Nothing here waits for a file system: that is left to processes, which can be given up."""

    def __init__(
        self, vault: JobVault, spawn: Spawn, jitter: random.Random, deadlines: StorageDeadlines
    ) -> None:
        self.persist_state = PersistState()
        self.persister = Persister(vault, self.persist_state, spawn, jitter)
        self.publisher = Publisher(vault, self.persist_state, spawn)
        self.absent_ranks = AbsentRanks(vault, self.persist_state, spawn)
        self.listing: StepListing | None = None
        self.world_size = 0
        self._vault = vault
        self._spawn = spawn
        self._deadlines = deadlines
        self._patience = ListingPatience(deadlines.list_s, deadlines.stall_s)
        self._jitter = jitter
        self._target: StorageTarget | None = None
        # Why the storage could not be listed; empty when it could.
        self.unseen_reason = ""
        # Whether that is so whatever the place is like, for the agent has no right to look.
        self.closed = False
        self._beginnings: dict[int, Beginning] = {}
        # Called with the id of the folder when it is seen.
        self.on_folder: Callable[[str], None] = lambda _: None
        # Of which the controller spoke last.
        self._generation = 0

    def open(self, storage: Storage, user: JobUser, known: str = "") -> None:
        """Use this place from now on, with this user's rights; ``known`` is its folder's id."""
        location = StorageLocation(storage.path, self._vault.job, known)
        target = self._target
        if target is None or (target.location, target.workers.user) != (
            location,
            user,
        ):
            if target is not None and target.location.path != location.path:
                self.persist_state.change_location()
            self.close()
            deadlines = self._deadlines
            workers = StorageWorkerPool(storage.path, user, deadlines.stall_s, deadlines.at_once)
            self._target = StorageTarget(location, workers, self.world_size)
            self._vault.files = StorageTier(self._target, self._vault.context.allocator)
        self._vault.change_signal.notify()

    def close(self) -> None:
        """Use no place any more."""
        target, self._target = self._target, None
        self._vault.files, self.listing, self.unseen_reason = None, None, ""
        self.closed = False
        self._patience.reset()
        if target is not None:
            self._spawn(target.workers.close(), f"close storage of {self._vault.job}")

    @property
    def configured(self) -> bool:
        """Return whether the job has a place for its steps."""
        return self._target is not None

    @property
    def pending(self) -> bool:
        """Return whether something is still to be brought there."""
        return self.configured and (self.persister.pending or self.publisher.pending)

    @property
    def trouble(self) -> str:
        """Return why the job's steps do not get there; empty while they do."""
        unseen = self.unseen_reason if self.persister.stored_at_s is None else ""
        return self.persister.trouble or self.publisher.trouble or unseen

    @property
    def age_s(self) -> float:
        """Return how long ago a file was brought there; 0 before the first."""
        at_s = self.persister.stored_at_s
        return asyncio.get_running_loop().time() - at_s if at_s is not None else 0.0

    @property
    def hung(self) -> int:
        """Return how many processes hang in its file system."""
        return self._target.workers.hung if self._target else 0

    def begin_generation(self, beginning: Beginning) -> None:
        """Take how a generation began, for whoever goes on from what it stores."""
        known = self._beginnings | {beginning.generation: beginning}
        newest = sorted(known)[-_BEGINNINGS_MAX:]
        self._beginnings = {number: known[number] for number in newest}

    def apply_directive(self, directive: VaultDirective, recoverable: Recoverable) -> Recoverable:
        """Take the controller's word; return what may be freed while it is being done."""
        if directive.generation != self._generation:
            # What an older one could not store is nobody's trouble any more.
            self._generation = directive.generation
            self.persister.forget_trouble()
            self.publisher.trouble = ""
        steps = tuple(StepKey(directive.generation, step) for step in directive.persist_steps)
        self.publisher.set_target(directive.publish)
        self.absent_ranks.wanted = wanted_of(directive)
        self.persist_state.apply_directive(steps, frozenset(directive.persist_replicas))
        return self.persist_state.retaining(recoverable)

    async def run(self) -> None:
        """Look at every change, until cancelled."""
        try:
            while True:
                target = self._current_target()
                if target is not None:
                    self.persister.start_due(target)
                    self.publisher.start_due(target)
                    self.absent_ranks.start_due(target)
                await self._vault.change_signal.wait()
        finally:
            if self._target is not None:
                await self._target.workers.close()

    async def poll_steps(self, waits: Callable[[], bool]) -> None:
        """Look again while nothing could be seen, for a server may come back, and while it waits.

        A node that only waits hears of no step that others store, and may be the last that can
        tell of them.
        """
        delay_s = _LOOK_AGAIN_S
        while True:
            await asyncio.sleep(delay_s * self._jitter.uniform(0.75, 1.25))
            before = self.persist_state.stored
            if self.unseen_reason or waits():
                await self.refresh_steps()
            news = self.persist_state.stored != before
            delay_s = _LOOK_AGAIN_S if news else min(2 * delay_s, _LOOK_AGAIN_S_MAX)

    async def refresh_steps(self) -> None:
        """Find out which whole steps are there; what cannot be seen in time is not there."""
        target = self._current_target()
        if target is None:
            return
        before, limit_s = self.listing, self._patience.limit_s
        try:
            async with asyncio.timeout(limit_s):
                found = await target.workers.ask(ListSteps(target.location), StepListing)
        except (StorageError, TimeoutError) as error:
            self.closed = (
                isinstance(error, StorageRefusedError) and error.kind is RefusalKind.CLOSED
            )
            if isinstance(error, TimeoutError):
                self._patience.exceed()
            self.unseen_reason = str(error) or f"no answer within {limit_s:g} s"
            what = (self._vault.job, target.location.path, self.unseen_reason)
            once = once_a_minute(f"job {self._vault.job}", self.unseen_reason)
            logger.warning("job %s: %s: %s", *what, extra=once)
            return
        self.unseen_reason, self.closed = "", False
        self._patience.reset()
        self.listing = found
        self._remember_folder(found.storage_id)
        lost = found.lost_latest
        if lost is not None and (before is None or before.lost_latest != lost):
            self._vault.report_bad_copy(
                f"shared storage: {lost}, to which latest points, is not complete"
            )
        self.persist_state.stored = found.steps
        self._vault.notify_change()

    def _remember_folder(self, storage_id: str) -> None:
        """From now on, another folder at the same path is an error: it was unmounted, say."""
        target = self._target
        if target is None or not storage_id or target.location.known:
            return
        self._target = replace(target, location=replace(target.location, known=storage_id))
        self._vault.files = StorageTier(self._target, self._vault.context.allocator)
        self.on_folder(storage_id)

    async def drain(self, limit_s: float, notify: Callable[[str], None]) -> None:
        """Wait until everything is there, at most so long; say now and then what is waited for."""
        end = asyncio.get_running_loop().time() + limit_s
        while self.pending and (left_s := end - asyncio.get_running_loop().time()) > 0:
            notify("bringing the newest step to storage, as --persist asks")
            await self._wait_settled(min(left_s, _PROGRESS_S))
        if self.pending:
            notify(f"the newest step did not reach storage within {limit_s:g} s")

    async def release_workers(self) -> None:
        """Keep no process waiting for more: its memory may be kept for long after a job's end."""
        if self._target is not None:
            await self._target.workers.close()

    async def _wait_settled(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while self.pending:
                    await self._vault.change_signal.wait()
        except TimeoutError:
            return

    def _current_target(self) -> StorageTarget | None:
        target = self._target
        if target is None:
            return None
        return replace(
            target,
            world_size=self.world_size,
            unseen_s=self._deadlines.unseen_s,
            beginnings=self._beginnings,
        )
