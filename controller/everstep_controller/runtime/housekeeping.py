"""Chores of the controller: write the state and the history down, and forget what is old."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from everstep_common.version import VERSION
from everstep_controller.journal.codec import encode
from everstep_controller.journal.group_commit import GroupCommit, JournalFull
from everstep_controller.journal.port import JournalWriter, StoredSnapshot
from everstep_controller.runtime.history_writer import HistoryWriter
from everstep_controller.runtime.runtime import Runtime

logger = logging.getLogger(__name__)

_DAY_NS = 86_400_000_000_000
_HISTORY_S = 60
_RETENTION_S = 3600


@dataclass(frozen=True, slots=True)
class Retention:
    """Retention times of what is kept, in days."""

    events_days: float
    announcements_days: float
    history_days: float


@dataclass(frozen=True, slots=True)
class Chores:
    """The periodic work, each a coroutine function without arguments."""

    snapshot: Callable[[], Awaitable[None]]
    retention: Callable[[], Awaitable[None]]
    write_history: Callable[[], Awaitable[None]]


class Housekeeping:
    """Chores of the controller; a journal that cannot be written is reported elsewhere."""

    def __init__(self, runtime: Runtime, journal: GroupCommit, retention: Retention) -> None:
        self._runtime = runtime
        self._journal = journal
        self._retention = retention
        self._snapshot_seq = 0
        self._history = HistoryWriter(journal)

    def chores(self) -> Chores:
        """Return the chores for a scheduler."""
        return Chores(self.snapshot, self.retention, self.write_history)

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
        history_ns = now_ns - round(self._retention.history_days * _DAY_NS)

        def forget(store: JournalWriter) -> None:
            deleted = store.compact(events_ns, announcements_ns)
            store.forget_history(history_ns)
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

    async def write_history(self) -> None:
        """Write down what has become of jobs, incidents and nodes since the last time."""
        await self._write_history(all_now=False)

    async def write_history_whole(self) -> None:
        """Write down what is going on as well, before the controller stops."""
        await self._write_history(all_now=True)

    async def _write_history(self, *, all_now: bool) -> None:
        state, now_ns = self._runtime.state, self._runtime.now_ns()
        try:
            await self._history.write(state, now_ns, all_now=all_now)
        except JournalFull as error:
            logger.error("history: %s", error)

    async def _try(self, chore: str, operation: Callable[[JournalWriter], None]) -> bool:
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
    scheduler.add_job(chores.write_history, "interval", seconds=_HISTORY_S, jitter=10, id="history")
    return scheduler
