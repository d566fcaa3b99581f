"""The watch over ranks that stand still looks every second, after any stop; in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from everstep_agent.jobs.standing.standing_watch import StandingWatch
from everstep_agent.jobs.state.plan import NO_PLAN, Plan
from everstep_proto.generated import fleet_pb2
from fakes.jumping_loop import simulate

_STEPS = 40


@dataclass
class Job:
    """A job of one rank on a node, whose newest generation may be stopped."""

    active: bool = True
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watch = StandingWatch(self._record, self._boot_ns, lambda: self.active)

    def _record(self, record: fleet_pb2.Record) -> None:
        self.told.append(record.WhichOneof("body") or "")

    @staticmethod
    def _boot_ns() -> int:
        return int((asyncio.get_running_loop().time() + 1000) * 1e9)

    async def train(self, generation: int) -> None:
        """Begin a generation that steps for a while, and then stands still."""
        self.active = True
        self.watch.begin(_plan(generation))
        for step in range(_STEPS):
            await asyncio.sleep(0.5)
            self.watch.add_step(0, step, self._boot_ns())
        await asyncio.sleep(20)


def _plan(generation: int) -> Plan:
    return replace(NO_PLAN, job="j", job_id="j-1", generation=generation, processes=1, world_size=1)


def _lived(story: Callable[[Job], Awaitable[None]]) -> list[str]:
    async def life() -> list[str]:
        job = Job()
        await story(job)
        job.watch.close()
        return job.told

    return simulate(life())


def test_a_rank_that_stands_still_is_told_without_any_word_of_it() -> None:
    assert _lived(lambda job: job.train(1)) == ["ranks_stand_still"]


def test_a_generation_after_a_stop_is_watched_like_the_first() -> None:
    async def story(job: Job) -> None:
        await job.train(1)
        job.active = False
        await asyncio.sleep(60)
        await job.train(2)

    assert _lived(story) == ["ranks_stand_still"] * 2


def test_so_is_one_after_a_stop_of_which_the_agent_has_only_read() -> None:
    async def story(job: Job) -> None:
        job.active = False
        job.watch.begin(_plan(1), unsure=True)
        await asyncio.sleep(60)
        await job.train(2)

    assert _lived(story) == ["ranks_stand_still"]


def test_nothing_is_told_of_a_generation_that_is_stopped() -> None:
    async def story(job: Job) -> None:
        job.watch.begin(_plan(1))
        for step in range(_STEPS):
            await asyncio.sleep(0.5)
            job.watch.add_step(0, step, job._boot_ns())
        job.active = False
        await asyncio.sleep(60)

    assert _lived(story) == []
