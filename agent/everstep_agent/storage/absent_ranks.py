"""Absent ranks: ranks of members whose agents are away, which write a step to storage themselves.

This node orders the step where they see it, and makes files like all others of what they write.
"""

import asyncio
import logging
import secrets
from dataclasses import dataclass

from everstep_agent.concurrency.generation_tasks import Spawn
from everstep_agent.concurrency.time_slices import run_in_slices
from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.persist_state import PersistState
from everstep_agent.storage.persister import StorageTarget
from everstep_agent.storage.worker.messages import (
    OrderOwnFiles,
    OwnFileRead,
    OwnFilesOrdered,
    ReadInOwnFile,
)
from everstep_agent.storage.worker_process import StorageError
from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.snapshots.copies import CopyKey, CopyManifest
from everstep_common.orders import VaultDirective
from everstep_common.own_files import OwnOrder, seal

logger = logging.getLogger(__name__)
_LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class AbsentStep:
    """Step that ranks without an agent are to write."""

    key: StepKey
    ranks: tuple[int, ...]


def wanted_of(directive: VaultDirective) -> AbsentStep | None:
    """Return what the controller wants of ranks without an agent."""
    if directive.absent_step is None or not directive.absent_ranks:
        return None
    key = StepKey(directive.generation, directive.absent_step)
    return AbsentStep(key, directive.absent_ranks)


class AbsentRanks:
    """Orders the newest step that is wanted, and reads in what comes, until another is wanted."""

    def __init__(self, vault: JobVault, state: PersistState, spawn: Spawn) -> None:
        self._vault = vault
        self._state = state
        self._spawn = spawn
        self._task: asyncio.Task[None] | None = None
        self.wanted: AbsentStep | None = None
        # What the job's ranks seal with.
        self.token_sha256 = ""

    def start_due(self, target: StorageTarget) -> None:
        """Begin what is due; one after another."""
        if self._missing(self.wanted) and (self._task is None or self._task.done()):
            self._task = self._spawn(self._follow(target), f"absent ranks of {self._vault.job}")

    def _missing(self, wanted: AbsentStep | None) -> list[int]:
        """Return the ranks whose files are not there, of the step that is wanted."""
        if wanted is None or wanted != self.wanted:
            return []
        key = wanted.key
        there = self._state.on_disk
        return [one for one in wanted.ranks if CopyKey(key.generation, one, key.step) not in there]

    async def _follow(self, target: StorageTarget) -> None:
        wanted, order = self.wanted, None
        while wanted is not None and (missing := self._missing(wanted)):
            try:
                order = order or await self._order(wanted, target)
                for rank in missing:
                    await self._read_in(order, rank, target)
            except StorageError as error:
                # The controller names another step when this one does not come.
                what = (self._vault.job, wanted.key, error)
                logger.info("job %s: %s of ranks without an agent: %s", *what)
            await asyncio.sleep(_LOOK_S)
        self._vault.change_signal.notify()

    async def _order(self, wanted: AbsentStep, target: StorageTarget) -> OwnOrder:
        key = wanted.key
        order = OwnOrder(
            job=self._vault.job,
            generation=key.generation,
            step=key.step,
            nonce=secrets.token_hex(16),
        )
        request = OrderOwnFiles(
            location=target.location,
            key=key,
            content=seal(order, self.token_sha256),
            beginning=target.beginnings.get(key.generation),
        )
        await target.workers.ask(request, OwnFilesOrdered)
        ranks = ", ".join(map(str, wanted.ranks[:5]))
        logger.info("job %s: %s is wanted of ranks without an agent: %s", order.job, key, ranks)
        return order

    async def _read_in(self, order: OwnOrder, rank: int, target: StorageTarget) -> None:
        request = ReadInOwnFile(
            location=target.location,
            rank=rank,
            world_size=target.world_size,
            order=order,
            token_sha256=self.token_sha256,
        )
        found = await target.workers.ask(request, OwnFileRead)
        written = found.description
        if written is None:
            return
        key = CopyKey(order.generation, rank, order.step)
        manifest = CopyManifest(key, written.size_bytes, written.root_hash, written.entries)
        await run_in_slices(self._vault.layouts.learn_layout(manifest))
        self._state.storage_id = found.storage_id
        self._state.mark_persisted(manifest)
        logger.info("job %s: %s is in storage, by its rank alone", self._vault.job, key)
        self._vault.notify_change()
