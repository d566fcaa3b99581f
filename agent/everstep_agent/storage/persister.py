"""Persister: writes the steps that the controller names to a job's storage, from memory."""

import asyncio
import logging
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.storage.formats.records import Beginning
from everstep_agent.storage.persist_state import PersistState, step_of
from everstep_agent.storage.storing_troubles import StoringTroubles
from everstep_agent.storage.worker.messages import CopyWritten, StorageLocation, WriteCopy
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import StorageError, StorageRefusedError
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest
from everstep_agent.vault.snapshots.holdings import PinnedCopy
from everstep_common.log_limit import once_a_minute

logger = logging.getLogger(__name__)
# Waits between attempts: long enough for a full disk to get room, and no longer, as a step that
# waits holds a slot.
_BACKOFF_S = (1.0, 5.0, 15.0)


@dataclass(frozen=True, slots=True)
class StorageTarget:
    """Place of a job's files, the workers that write them, and how many ranks make a step."""

    location: StorageLocation
    workers: StorageWorkerPool
    world_size: int
    # How long a file that another node has written may stay unseen.
    unseen_s: float = 0.0
    # How generations of the job began, by their numbers, as far as this node knows.
    beginnings: Mapping[int, Beginning] = field(default_factory=dict)


class Persister:
    """Writer of the files that the controller wants, for each local rank one at a time."""

    def __init__(
        self, vault: JobVault, state: PersistState, spawn: Spawn, jitter: random.Random
    ) -> None:
        self._vault = vault
        self._state = state
        self._spawn = spawn
        self._jitter = jitter
        self._busy: set[int] = set()
        self._troubles = StoringTroubles()
        self.stored_at_s: float | None = None
        # Tells the job's user that a step was given up, once for each reason.
        self.notify: Callable[[str], None] = lambda _: None
        self._told = ""

    @property
    def trouble(self) -> str:
        """Return why a last attempt failed; empty where each rank's did not."""
        return self._troubles.newest

    def forget_trouble(self) -> None:
        """What could not be stored of an older generation is nobody's trouble any more."""
        self._troubles.forget()

    @property
    def pending(self) -> bool:
        """Return whether something that is here is still to be written."""
        return bool(self._busy or self._due())

    def start_due(self, target: StorageTarget) -> None:
        """Begin what is due."""
        for key in self._due():
            if key.rank not in self._busy:
                self._busy.add(key.rank)
                self._spawn(self._store(key, target), f"store {self._vault.job} {key}")

    def _due(self) -> list[CopyKey]:
        """Return the oldest copy of each rank that is wanted and not there."""
        first: dict[int, CopyKey] = {}
        for manifest, replica in self._vault.holdings.manifests():
            key = manifest.key
            if self._state.should_persist(key, replica=replica):
                first[key.rank] = min(key, first.get(key.rank, key))
        return sorted(first.values(), key=lambda key: (key.generation, key.step, key.rank))

    async def _store(self, key: CopyKey, target: StorageTarget) -> None:
        attempt = 0
        try:
            while (pinned := self._pin(key)) is not None:
                try:
                    await self._attempt(pinned, target)
                    return
                except StorageError as error:
                    if self._record_failure(pinned, error) or not await self._is_still_good(
                        pinned, error
                    ):
                        return
                finally:
                    pinned.release()
                    self._free_slots()
                await self._pause(attempt)
                attempt += 1
        finally:
            self._busy.discard(key.rank)
            self._vault.change_signal.notify()

    def _pin(self, key: CopyKey) -> PinnedCopy | None:
        pinned = self._vault.holdings.pin(key)
        if pinned is not None and not self._state.should_persist(key, replica=pinned.replica):
            pinned.release()
            return None
        return pinned

    async def _is_still_good(self, pinned: PinnedCopy, error: StorageError) -> bool:
        """Return whether the copy is still what was verified; a bad one is reported and dropped."""
        return not isinstance(
            error, StorageRefusedError
        ) or await self._vault.verifier.verify_again(pinned)

    async def _attempt(self, pinned: PinnedCopy, target: StorageTarget) -> None:
        began = asyncio.get_running_loop().time()
        layout = (await run_in_slices(self._vault.layouts.learn_layout(pinned.manifest))).whole
        memory = pinned.region.open_read_only()
        try:
            written = await target.workers.ask(
                _request(pinned.manifest, target, layout), CopyWritten, [memory]
            )
        finally:
            os.close(memory)
        now = asyncio.get_running_loop().time()
        counts = self._vault.context.counters
        counts.stored += 1
        counts.stored_bytes += written.file_bytes
        counts.stored_s += now - began
        self._troubles.stored(pinned.manifest.key.rank)
        self._told, self.stored_at_s = "", now
        self._state.storage_id = written.storage_id
        self._state.mark_persisted(pinned.manifest)
        logger.info("job %s: %s is in storage", self._vault.job, pinned.manifest.key)

    def _record_failure(self, pinned: PinnedCopy, error: StorageError) -> bool:
        """Count a failure; return whether the step is given up."""
        key, job = pinned.manifest.key, self._vault.job
        self._vault.context.counters.store_failures += 1
        self._troubles.failed(key.rank, f"{key}: {error}", replica=pinned.replica)
        once = once_a_minute(f"job {job}", str(error))
        logger.warning("job %s: %s could not be stored: %s", job, key, error, extra=once)
        given_up = self._state.mark_failed(key, f"rank {key.rank}: {error}")
        if given_up and self._told != str(error):
            self._told = str(error)
            self.notify(f"step {key.step} is not in storage, only in memory: {error}")
        return given_up

    def _free_slots(self) -> None:
        vault = self._vault
        vault.recoverable = self._state.retaining(vault.recoverable)
        vault.holdings.free_unneeded(vault.recoverable)
        vault.notify_change()

    async def _pause(self, attempt: int) -> None:
        delay_s = _BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)]
        await asyncio.sleep(delay_s * self._jitter.uniform(0.75, 1.25))


def _request(manifest: CopyManifest, target: StorageTarget, layout: bytes) -> WriteCopy:
    return WriteCopy(
        location=target.location,
        key=step_of(manifest.key),
        rank=manifest.key.rank,
        world_size=target.world_size,
        size_bytes=manifest.size_bytes,
        root_hash=manifest.root_hash,
        layout=layout,
        entries=manifest.entries,
        beginning=target.beginnings.get(manifest.key.generation),
    )
