"""The controller is away: members of a job on several nodes free memory among themselves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_common.launcher_messages import Start
from everstep_common.rank_messages import Begin, Skip
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually
from integration.vault_world import (
    Client,
    Kept,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
    training,
)

# Members tell each other twice a second, give or take: what they would do by it is done by then.
_NOTHING_S = 1.5


@dataclass(slots=True)
class Place:
    """One member: whether its controller is away, and what outlives its agent."""

    number: int
    folder: Path
    kept: Kept = field(default_factory=Kept)
    away_s: float = 60.0

    def world(self) -> Environment:
        return Environment(
            stored_fds=self.kept.hand_over(),
            keeper=self.kept,
            controller_away_s=lambda: self.away_s,
        )


@dataclass(slots=True)
class Member:
    """One member of a job of two, and its rank."""

    node: Node
    rank: Client
    place: Place

    @property
    def job(self) -> NodeJob:
        (job,) = self.node.jobs.table.named("demo")
        return job

    @property
    def recoverable(self) -> int | None:
        return self.job.vault.recoverable.step

    def own_steps(self) -> set[int]:
        return self._steps(replica=False)

    def replicas(self) -> set[int]:
        return self._steps(replica=True)

    def _steps(self, *, replica: bool) -> set[int]:
        held = self.job.vault.holdings.manifests()
        return {manifest.key.step for manifest, is_one in held if is_one is replica}


def _plan(number: int, generation: int = 1) -> fleet_pb2.StartGeneration:
    wanted = plan(generation, first_rank=number, node_count=2)
    wanted.node_rank = number
    return wanted


@asynccontextmanager
async def _member(place: Place, running_generation: int = 0) -> AsyncIterator[Member]:
    chosen = settings(place.folder, slot_wait_s=0.0)
    name, joins = f"node-{place.number}", {"running_generation": running_generation}
    async with running(chosen, name, place.world()) as node, launcher(node, **joins) as control:
        if not running_generation:
            node.order(start_generation=_plan(place.number))
            assert isinstance(await control.hear(), Start)
        async with trainer(node, rank=place.number) as rank:
            yield Member(node, rank, place)


@asynccontextmanager
async def _pair(folder: Path) -> AsyncIterator[tuple[Member, Member]]:
    async with AsyncExitStack() as stack:
        first, second = [
            await stack.enter_async_context(_member(Place(number, folder / str(number))))
            for number in range(2)
        ]
        _direct(first, second)
        _direct(second, first)
        yield first, second
    first.place.kept.close()
    second.place.kept.close()


def _direct(member: Member, other: Member, step: int | None = None) -> None:
    collector = other.node if member.place.number else None
    member.node.direct(1, step, other.node, collector=collector)


async def _save(step: int, *members: Member) -> None:
    for member in members:
        await member.rank.save(step, b"state after %d" % step)


@lived
async def test_members_free_older_steps_when_all_have_a_newer_one(tmp_path: Path) -> None:
    async with _pair(tmp_path) as (first, second):
        # More steps than there are slots.
        for step in range(9):
            await _save(step, first, second)
            await eventually(lambda s=step: first.recoverable == second.recoverable == s)  # type: ignore[misc]
        for member in (first, second):
            await eventually(lambda m=member: m.own_steps() == m.replicas() == {8})  # type: ignore[misc]
            member.job.freshness.record_step(9)
            assert member.job.freshness.steps_behind() == 1


@lived
async def test_members_whose_agents_end_tell_nobody(tmp_path: Path) -> None:
    async with _pair(tmp_path) as (first, second):
        await _save(0, first, second)
        jobs = (first.job, second.job)
    for job in jobs:
        job.vault.notify_change()


@lived
async def test_a_member_whose_controller_is_there_says_nothing_and_nothing_is_freed(
    tmp_path: Path,
) -> None:
    async with _pair(tmp_path) as (first, second):
        await _save(0, first, second)
        await eventually(lambda: first.recoverable == second.recoverable == 0)
        for silent, other in ((first, second), (second, first)):
            silent.place.away_s = 0.0
            _direct(silent, other, other.recoverable)
            known = other.recoverable
            assert known is not None
            await _save(known + 1, first, second)
            await asyncio.sleep(_NOTHING_S)
            assert (first.recoverable, second.recoverable) == (known, known)
            silent.place.away_s = 60.0
            silent.job.vault.notify_change()
            await eventually(lambda s=known + 1: first.recoverable == second.recoverable == s)  # type: ignore[misc]


@lived
async def test_a_step_whose_replica_is_nowhere_frees_nothing(tmp_path: Path) -> None:
    async with _pair(tmp_path) as (first, second):
        await _save(0, first, second)
        await eventually(lambda: first.recoverable == second.recoverable == 0)
        nowhere = "127.0.0.1:1"
        second.node.direct(
            1, 0, collector=first.node, replica_target="node-9", replica_bulk_address=nowhere
        )
        await _save(1, first, second)
        await eventually(lambda: 1 in first.own_steps() and 1 in second.own_steps())
        await asyncio.sleep(_NOTHING_S)
        assert (first.recoverable, second.recoverable) == (0, 0)
        _direct(second, first, 0)
        await eventually(lambda: first.recoverable == second.recoverable == 1)


@lived
async def test_a_member_in_the_next_generation_frees_nothing_of_the_one_before(
    tmp_path: Path,
) -> None:
    async with _pair(tmp_path) as (first, second):
        await _save(0, first, second)
        await eventually(lambda: first.recoverable == second.recoverable == 0)
        first.node.order(start_generation=_plan(0, generation=2))
        await second.rank.save(1, b"state after 1")
        await asyncio.sleep(_NOTHING_S)
        assert second.recoverable == 0
        assert 0 in first.own_steps()
        assert second.own_steps() >= {0, 1}


@lived
async def test_an_agent_that_starts_again_says_again_what_it_has(tmp_path: Path) -> None:
    place = Place(1, tmp_path / "1")
    async with _member(Place(0, tmp_path / "0")) as first:
        async with _member(place) as second:
            _direct(first, second)
            _direct(second, first)
            for step in range(3):
                await _save(step, first, second)
                await eventually(lambda s=step: first.recoverable == second.recoverable == s)  # type: ignore[misc]
        async with _member(place, running_generation=1) as again:
            # What it had been told it learns anew, from the word of all.
            await eventually(lambda: again.recoverable == 2)
            _direct(first, again)
            _direct(again, first)
            await _save(3, first, again)
            await eventually(lambda: first.recoverable == again.recoverable == 3)
    place.kept.close()


@lived
async def test_an_older_truth_of_a_controller_that_is_back_takes_nothing_away(
    tmp_path: Path,
) -> None:
    async with _pair(tmp_path) as (first, second):
        for step in range(5):
            await _save(step, first, second)
            await eventually(lambda s=step: first.recoverable == second.recoverable == s)  # type: ignore[misc]
        for member, other in ((first, second), (second, first)):
            member.place.away_s = 0.0
            _direct(member, other, 1)
            assert member.recoverable == 1
        await asyncio.sleep(0.5)  # what a directive frees is freed at once
        assert first.own_steps() == second.own_steps() == {4}
        assert first.replicas() == second.replicas() == {4}


@lived
async def test_steps_that_find_no_slot_become_fewer_until_the_next_directive(
    tmp_path: Path,
) -> None:
    async with _pair(tmp_path) as (first, second):
        slots = len(first.rank.maps)
        for step in range(slots):
            await first.rank.save(step, b"state")
        assert isinstance(await first.rank.ask(Begin(slots, 0.0)), Skip)
        assert first.job.vault.cadence.next_step(1, slots + 1) == slots + 1  # 4, of two
        assert isinstance(await first.rank.ask(Begin(slots + 1, 0.0)), Skip)
        assert first.job.vault.cadence.next_step(1, slots + 2) == 8
        _direct(first, second)
        assert first.job.vault.cadence.next_step(1, slots + 2) == slots + 2


@lived
async def test_a_spare_keeps_the_newest_replica_of_a_job_on_one_node(tmp_path: Path) -> None:
    keeps, trains = Place(1, tmp_path / "b"), Place(0, tmp_path / "a")
    async with (
        running(settings(keeps.folder), "node-1", keeps.world()) as keeper,
        running(settings(trains.folder), "node-0", trains.world()) as node,
        training(node) as rank,
    ):
        keeper.direct(1)
        node.direct(1, target=keeper)
        (job,) = keeper.jobs.table.named("demo")
        for step in range(9):
            await rank.save(step, b"state after %d" % step)
            await eventually(partial(_has, job, step))
        await eventually(lambda: _keys(job) == {(1, 0, 8)})
        # Not before it has the newer one: nothing comes from a node that sends to nobody.
        node.direct(1, 8)
        await rank.save(9, b"state after 9")
        await asyncio.sleep(_NOTHING_S)
        assert _keys(job) == {(1, 0, 8)}


def _has(job: NodeJob, step: int) -> bool:
    return (1, 0, step) in _keys(job)


def _keys(job: NodeJob) -> set[tuple[int, int, int]]:
    keys = (manifest.key for manifest, _ in job.vault.holdings.manifests())
    return {(key.generation, key.rank, key.step) for key in keys}
