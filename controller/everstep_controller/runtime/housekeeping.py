"""Chores of the controller: write the state down, forget what is old, keep the ledgers' totals."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from everstep_common.version import VERSION
from everstep_controller.journal.codec import encode
from everstep_controller.journal.compaction import (
    compact,
    forget_outboxes,
    prune_snapshots,
    save_ledger,
)
from everstep_controller.journal.group_commit import GroupCommit, JournalFull
from everstep_controller.journal.store import JournalStore, StoredSnapshot
from everstep_controller.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

_DAY_NS = 86_400_000_000_000
_LEDGER_S = 600
_RETENTION_S = 3600


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention times of what is kept, in days."""

    events_days: float
    announcements_days: float


@dataclass(frozen=True, slots=True)
class Chores:
    """The periodic work, each a coroutine function without arguments."""

    snapshot: Callable[[], Awaitable[None]]
    retention: Callable[[], Awaitable[None]]
    roll_up_ledgers: Callable[[], Awaitable[None]]


class Housekeeping:
    """Chores of the controller; a journal that cannot be written is reported elsewhere."""

    def __init__(self, runtime: Runtime, journal: GroupCommit, retention: Retention) -> None:
        self._runtime = runtime
        self._journal = journal
        self._retention = retention
        self._snapshot_seq = 0

    def chores(self) -> Chores:
        """Return the chores for a scheduler."""
        return Chores(self.snapshot, self.retention, self.roll_up_ledgers)

    async def snapshot(self) -> None:
        """Write the state down, unless nothing happened since the last time."""
        seq = self._runtime.seq
        if seq == self._snapshot_seq:
            return
        state = encode(self._runtime.state)
        now_ns = self._runtime.now_ns()
        taken = StoredSnapshot(seq, now_ns, VERSION, state)
        events_ns = now_ns - round(self._retention.events_days * _DAY_NS)

        def save(store: JournalStore) -> None:
            store.save_snapshot(taken)
            prune_snapshots(store, events_ns)

        if await self._try("snapshot", save):
            self._snapshot_seq = seq

    async def retention(self) -> None:
        """Delete what is older than it has to be kept."""
        now_ns = self._runtime.now_ns()
        events_ns = now_ns - round(self._retention.events_days * _DAY_NS)
        announcements_ns = now_ns - round(self._retention.announcements_days * _DAY_NS)

        def forget(store: JournalStore) -> None:
            deleted = compact(store, events_ns, announcements_ns)
            logger.info("retention: %d events deleted", deleted)

        if await self._try("retention", forget):
            await self._forget_outboxes()

    async def _forget_outboxes(self) -> None:
        # In two steps: a mark that is read was made after its node's Hello, which is taken by now.
        try:
            outboxes = await self._journal.call(lambda store: store.outboxes())
        except JournalFull as error:
            logger.error("retention: %s", error)
            return
        nodes = self._runtime.state.nodes
        replaced = [
            outbox
            for outbox, node in outboxes.items()
            if node in nodes and nodes[node].outbox not in ("", outbox)
        ]
        if replaced:
            await self._try("retention", lambda store: forget_outboxes(store, replaced))

    async def roll_up_ledgers(self) -> None:
        """Keep the totals of every job's ledger."""
        now_ns = self._runtime.now_ns()
        totals = {
            job_id: {category.value: ns for category, ns in job.ledger.totals(now_ns).items()}
            for job_id, job in self._runtime.state.jobs.items()
        }

        def save(store: JournalStore) -> None:
            for job_id, amounts in totals.items():
                save_ledger(store, job_id, now_ns, amounts)

        await self._try("ledger roll-up", save)

    async def _try(self, chore: str, operation: Callable[[JournalStore], None]) -> bool:
        try:
            await self._journal.call(operation)
        except JournalFull as error:
            logger.error("%s: %s", chore, error)
            return False
        return True


def make_scheduler(chores: Chores, state_snapshot_interval_s: float) -> AsyncIOScheduler:
    """Return a scheduler that is not started; a chore that is late runs once, not many times."""
    scheduler = AsyncIOScheduler(job_defaults={"coalesce": True, "misfire_grace_time": None})
    scheduler.add_job(
        chores.snapshot, "interval", seconds=state_snapshot_interval_s, jitter=5, id="snapshot"
    )
    scheduler.add_job(chores.retention, "interval", seconds=_RETENTION_S, jitter=60, id="retention")
    scheduler.add_job(
        chores.roll_up_ledgers, "interval", seconds=_LEDGER_S, jitter=30, id="ledger roll-up"
    )
    return scheduler
