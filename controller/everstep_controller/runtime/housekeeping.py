"""Chores of the controller: write the state down, forget what is old, keep the ledgers' totals."""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from everstep_common.version import VERSION
from everstep_controller.core.fleet.incidents import failures_of_job
from everstep_controller.core.model.state import State
from everstep_controller.journal.codec import encode
from everstep_controller.journal.group_commit import GroupCommit, JournalFull
from everstep_controller.journal.port import JournalWriter, LedgerRow, StoredSnapshot
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
        # What was written down last of each job's ledger.
        self._rolled_up: dict[str, Mapping[str, int]] = {}

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

        def save(store: JournalWriter) -> None:
            store.save_snapshot(taken)
            store.prune_snapshots(events_ns)

        if await self._try("snapshot", save):
            self._snapshot_seq = seq

    async def retention(self) -> None:
        """Delete what is older than it has to be kept."""
        now_ns = self._runtime.now_ns()
        events_ns = now_ns - round(self._retention.events_days * _DAY_NS)
        announcements_ns = now_ns - round(self._retention.announcements_days * _DAY_NS)

        def forget(store: JournalWriter) -> None:
            deleted = store.compact(events_ns, announcements_ns)
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
            if node in nodes and nodes[node].spec.outbox not in ("", outbox)
        ]
        if replaced:
            await self._try("retention", lambda store: store.forget_outboxes(replaced))

    async def roll_up_ledgers(self) -> None:
        """Keep the totals of every job's ledger."""
        rows = [
            row
            for row in current_rows(self._runtime.state, self._runtime.now_ns())
            if self._rolled_up.get(row.job) != row.totals  # one that has ended changes no more
        ]

        def save(store: JournalWriter) -> None:
            for row in rows:
                store.save_ledger(row)

        if await self._try("ledger roll-up", save):
            kept = {
                job: self._rolled_up[job]
                for job in self._runtime.state.jobs
                if job in self._rolled_up
            }
            self._rolled_up = kept | {row.job: row.totals for row in rows}

    async def _try(self, chore: str, operation: Callable[[JournalWriter], None]) -> bool:
        try:
            await self._journal.call(operation)
        except JournalFull as error:
            logger.error("%s: %s", chore, error)
            return False
        return True


def current_rows(state: State, now_ns: int) -> Iterator[LedgerRow]:
    """Yield what the time of each job has gone to so far."""
    for job_id, job in state.jobs.items():
        totals = {category.value: ns for category, ns in job.ledger.totals(now_ns).items()}
        nodes = len(job.generation.members) or job.spec.nodes_min
        yield LedgerRow(job_id, now_ns, totals, nodes, failures_of_job(state, job))


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
