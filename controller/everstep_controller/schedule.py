"""Schedule of the periodic chores: state snapshots, retention, ledger totals."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from apscheduler.schedulers.asyncio import AsyncIOScheduler

_LEDGER_S = 600
_RETENTION_S = 3600


@dataclass(frozen=True, slots=True)
class Chores:
    """The periodic work, each a coroutine function without arguments."""

    snapshot: Callable[[], Awaitable[None]]
    retention: Callable[[], Awaitable[None]]
    roll_up_ledgers: Callable[[], Awaitable[None]]


def make_scheduler(chores: Chores, snapshot_interval_s: float) -> AsyncIOScheduler:
    """Return a scheduler that is not started; a chore that is late runs once, not many times."""
    scheduler = AsyncIOScheduler(job_defaults={"coalesce": True, "misfire_grace_time": None})
    scheduler.add_job(
        chores.snapshot, "interval", seconds=snapshot_interval_s, jitter=5, id="snapshot"
    )
    scheduler.add_job(chores.retention, "interval", seconds=_RETENTION_S, jitter=60, id="retention")
    scheduler.add_job(
        chores.roll_up_ledgers, "interval", seconds=_LEDGER_S, jitter=30, id="ledger roll-up"
    )
    return scheduler
