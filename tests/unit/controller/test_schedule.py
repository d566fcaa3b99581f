import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

from everstep_controller.runtime.housekeeping import Chores, make_scheduler


@dataclass
class Diary:
    """Chores that are only written down."""

    done: list[str] = field(default_factory=list)

    def chores(self) -> Chores:
        return Chores(self.snapshot, self.retention, self.write_history)

    async def snapshot(self) -> None:
        self.done.append("snapshot")

    async def retention(self) -> None:
        self.done.append("retention")

    async def write_history(self) -> None:
        self.done.append("history")


def test_every_chore_has_its_interval_and_runs_once_when_it_is_late() -> None:
    scheduler = make_scheduler(Diary().chores(), 300.0)
    jobs = {job.id: job for job in scheduler.get_jobs()}
    intervals = {name: job.trigger.interval for name, job in jobs.items()}
    assert intervals == {
        "snapshot": timedelta(minutes=5),
        "retention": timedelta(hours=1),
        "history": timedelta(minutes=1),
    }
    # What all controllers of a site would do at the same second is spread.
    assert all(job.trigger.jitter for job in jobs.values())


def test_each_runs_when_it_is_its_time() -> None:
    async def scenario() -> None:
        diary = Diary()
        scheduler = make_scheduler(diary.chores(), 300.0)
        scheduler.start(paused=True)
        for job in scheduler.get_jobs():
            assert job.coalesce
            assert job.misfire_grace_time is None
            await job.func()
        scheduler.shutdown(wait=False)
        assert sorted(diary.done) == ["history", "retention", "snapshot"]

    asyncio.run(scenario())
