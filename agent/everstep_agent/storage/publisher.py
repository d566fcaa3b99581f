"""Publisher: moves ``latest`` when this is the node that the controller named for it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.storage.formats.records import StepKey, key_of
from everstep_agent.storage.persist_state import PersistState
from everstep_agent.storage.persister import StorageTarget
from everstep_agent.storage.worker.messages import (
    LatestMoved,
    ListSteps,
    MoveLatest,
    RefusalKind,
    StepListing,
)
from everstep_agent.storage.worker_process import StorageError, StorageRefusedError
from everstep_agent.vault.job_vault import JobVault
from everstep_common.log_limit import once_a_minute
from everstep_common.orders import Publish

logger = logging.getLogger(__name__)
_RETRY_S = 2.0
_ATTEMPTS_MAX = 5
# Number of removed steps, the newest ones, that are remembered.
_REMOVED_MAX = 64


class Publisher:
    """Executor of the newest Publish, once; then tells what is whole."""

    def __init__(self, vault: JobVault, state: PersistState, spawn: Spawn) -> None:
        self._vault = vault
        self._state = state
        self._spawn = spawn
        self._wanted: Publish | None = None
        self._done: Publish | None = None
        self._task: asyncio.Task[None] | None = None
        self.trouble = ""
        # Tells the job's user that another job has taken over, once for each reason.
        self.notify: Callable[[str], None] = lambda _: None
        self._told = ""
        # What was removed from here: it is not seen, and not waited for.
        self._removed: deque[StepKey] = deque(maxlen=_REMOVED_MAX)

    @property
    def pending(self) -> bool:
        """Return whether ``latest`` still has to be moved."""
        return self._wanted is not None and self._wanted != self._done

    def set_target(self, publish: Publish | None) -> None:
        """Take the controller's word."""
        self._wanted = publish

    def start_due(self, storage_target: StorageTarget) -> None:
        """Begin what is due; one after another."""
        if self.pending and (self._task is None or self._task.done()):
            self._task = self._spawn(self._publish(storage_target), f"publish {self._vault.job}")

    async def _publish(self, storage_target: StorageTarget) -> None:
        attempts, clock = 0, asyncio.get_running_loop().time
        ends_s = clock() + storage_target.unseen_s
        while (wanted := self._wanted) is not None and wanted != self._done:
            try:
                moved = await storage_target.workers.ask(
                    move_latest_for(wanted, storage_target), LatestMoved
                )
                seen = await storage_target.workers.ask(
                    ListSteps(storage_target.location), StepListing
                )
            except StorageError as error:
                if self._may_be_seen_later(wanted, error) and clock() < ends_s:
                    self.trouble = str(error)
                    await asyncio.sleep(_RETRY_S)
                    continue
                attempts += 1
                self._record_failure(wanted, error)
                if isinstance(error, StorageRefusedError) or attempts == _ATTEMPTS_MAX:
                    self._done, ends_s = wanted, clock() + storage_target.unseen_s
                else:
                    await asyncio.sleep(_RETRY_S)
                continue
            logger.info("job %s: storage: %s", self._vault.job, moved.reason)
            self._state.stored, self.trouble = seen.steps, ""
            self._removed.extend(moved.removed)
            self._done = wanted
            self._vault.notify_change()

    def _record_failure(self, wanted: Publish, error: StorageError) -> None:
        self.trouble = str(error)
        once = once_a_minute(f"job {self._vault.job}", str(error))
        logger.warning("job %s: latest could not be moved: %s", self._vault.job, error, extra=once)
        rival = isinstance(error, StorageRefusedError) and error.kind is RefusalKind.RIVAL
        if rival and self._told != str(error):
            self._told = str(error)
            self.notify(str(error))
        if wanted.target is not None:
            self._state.failures[key_of(wanted.target)] = str(error)
        self._vault.notify_change()

    def _may_be_seen_later(self, wanted: Publish, error: StorageError) -> bool:
        unseen = isinstance(error, StorageRefusedError) and error.kind is RefusalKind.UNSEEN
        return unseen and (wanted.target is None or key_of(wanted.target) not in self._removed)


def move_latest_for(publish: Publish, target: StorageTarget) -> MoveLatest:
    """Return what a storage worker is to do to publish a step."""
    return MoveLatest(
        location=target.location,
        generation=publish.generation,
        target=publish.target,
        files=publish.files,
        keep=tuple(key_of(step) for step in publish.keep),
        skipped=publish.skipped,
        beginning=target.beginnings.get(publish.generation),
    )
