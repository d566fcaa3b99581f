"""One job's storage on this node: what is wanted there, who brings it, what is seen there."""

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.persister import Persister, StorageTarget
from everstep_agent.storage.publisher import Publisher
from everstep_agent.storage.storage_tier import StorageTier
from everstep_agent.storage.worker.messages import ListSteps, StepListing, StorageLocation
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import JobUser, StorageError
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.snapshots.copies import Recoverable
from everstep_common.trainer_messages import Storage
from everstep_proto.generated import fleet_pb2

logger = logging.getLogger(__name__)
_PROGRESS_S = 2.0
# To look costs a shared file system a question for each file of some steps: the less it finds, the
# less often it is done.
_LOOK_AGAIN_S = 5.0
_LOOK_AGAIN_S_MAX = 40.0


@dataclass(frozen=True, slots=True)
class StorageDeadlines:
    """How long storage may take: ``silence_s`` without a byte, ``look_s`` to say what is there."""

    silence_s: float
    look_s: float
    at_once: int


class JobStorage:
    """Nothing here waits for a file system: that is left to processes, which can be given up."""

    def __init__(
        self, vault: JobVault, spawn: Spawn, jitter: random.Random, patience: StorageDeadlines
    ) -> None:
        self.wishes = vault.wishes
        self.persister = Persister(vault, spawn, jitter)
        self.publisher = Publisher(vault, spawn)
        self.seen: StepListing | None = None
        self.world_size = 0
        self._vault = vault
        self._spawn = spawn
        self._patience = patience
        self._jitter = jitter
        self._mark: StorageTarget | None = None
        # Why the folder could not be looked at; empty when it could.
        self.blind = ""

    def open(self, storage: Storage, user: JobUser) -> None:
        """Use this place from now on, with this user's rights."""
        place = StorageLocation(storage.path, self._vault.job)
        mark = self._mark
        if mark is None or (mark.place, mark.clerks.user) != (place, user):
            if mark is not None and mark.place != place:
                self.wishes.elsewhere()
            self.shut()
            patience = self._patience
            clerks = StorageWorkerPool(storage.path, user, patience.silence_s, patience.at_once)
            self._mark = StorageTarget(place, clerks, self.world_size)
            self._vault.files = StorageTier(self._mark, self._vault.site.allocator)
        self._vault.bell.ring()

    def shut(self) -> None:
        """Use no place any more."""
        mark, self._mark = self._mark, None
        self._vault.files, self.seen, self.blind = None, None, ""
        if mark is not None:
            self._spawn(mark.clerks.close(), f"close storage of {self._vault.job}")

    @property
    def configured(self) -> bool:
        """Return whether the job has a place for its steps."""
        return self._mark is not None

    @property
    def pending(self) -> bool:
        """Return whether something is still to be brought there."""
        return self.configured and (self.persister.pending or self.publisher.pending)

    @property
    def trouble(self) -> str:
        """Return why the job's steps do not get there; empty while they do."""
        blind = self.blind if self.persister.stored_at_s is None else ""
        return self.persister.trouble or self.publisher.trouble or blind

    @property
    def age_s(self) -> float:
        """Return how long ago a file was brought there; 0 before the first."""
        at_s = self.persister.stored_at_s
        return asyncio.get_running_loop().time() - at_s if at_s is not None else 0.0

    @property
    def hung(self) -> int:
        """Return how many processes hang in its file system."""
        return self._mark.clerks.hung if self._mark else 0

    def direct(self, directive: fleet_pb2.VaultDirective, recoverable: Recoverable) -> Recoverable:
        """Take the controller's word; return what may be freed while it is being done."""
        steps = tuple(StepKey(directive.generation, step) for step in directive.persist_steps)
        publish = directive.publish if directive.HasField("publish") else None
        self.publisher.direct(publish)
        self.wishes.direct(steps, frozenset(directive.persist_replicas))
        return self.wishes.keeping(recoverable)

    async def run(self) -> None:
        """Look at every change, until cancelled."""
        try:
            while True:
                mark = self._marked()
                if mark is not None:
                    self.persister.advance(mark)
                    self.publisher.advance(mark)
                await self._vault.bell.wait()
        finally:
            if self._mark is not None:
                await self._mark.clerks.close()

    async def keep_looking(self, waits: Callable[[], bool]) -> None:
        """Look again while nothing could be seen, for a server may come back, and while it waits.

        A node that only waits hears of no step that others store, and may be the last that can
        tell of them.
        """
        delay_s = _LOOK_AGAIN_S
        while True:
            await asyncio.sleep(delay_s * self._jitter.uniform(0.75, 1.25))
            before = self.wishes.stored
            if self.blind or waits():
                await self.look()
            news = self.wishes.stored != before
            delay_s = _LOOK_AGAIN_S if news else min(2 * delay_s, _LOOK_AGAIN_S_MAX)

    async def look(self) -> None:
        """Find out which whole steps are there; what cannot be seen in time is not there."""
        mark = self._marked()
        if mark is None:
            return
        try:
            async with asyncio.timeout(self._patience.look_s):
                before, self.seen = (
                    self.seen,
                    await mark.clerks.ask(ListSteps(mark.place), StepListing),
                )
        except (StorageError, TimeoutError) as error:
            self.blind = str(error) or f"no answer within {self._patience.look_s:g} s"
            logger.warning("job %s: %s: %s", self._vault.job, mark.place.path, self.blind)
            return
        self.blind = ""
        if (lost := self.seen.lost) is not None and (before is None or before.lost != lost):
            self._vault.bad(f"shared storage: {lost}, to which latest points, is not whole")
        self.wishes.stored = self.seen.steps
        self._vault.changed()

    async def finish(self, limit_s: float, tell: Callable[[str], None]) -> None:
        """Wait until everything is there, at most so long; say now and then what is waited for."""
        end = asyncio.get_running_loop().time() + limit_s
        while self.pending and (left_s := end - asyncio.get_running_loop().time()) > 0:
            tell("bringing the newest step to storage, as --persist asks")
            await self._settled(min(left_s, _PROGRESS_S))
        if self.pending:
            tell(f"the newest step did not reach storage within {limit_s:g} s")

    async def rest(self) -> None:
        """Keep no process waiting for more: its memory may be kept for long after a job's end."""
        if self._mark is not None:
            await self._mark.clerks.close()

    async def _settled(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                while self.pending:
                    await self._vault.bell.wait()
        except TimeoutError:
            return

    def _marked(self) -> StorageTarget | None:
        mark = self._mark
        return mark and StorageTarget(mark.place, mark.clerks, self.world_size)
