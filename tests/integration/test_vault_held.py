"""A planned restart: the last step before it is kept, and nobody begins a later one."""

from pathlib import Path

from everstep_common.launcher_messages import Start, Stop
from everstep_common.rank_messages import Begin, Progress, Skip, Slot, Unplanned
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    Client,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
    training,
)


async def _begin(node: Node, rank: Client, step: int) -> None:
    """Ask for a slot; returns when the agent has the question."""
    await rank.tell(Begin(step))
    await rank.tell(Progress(step - 1, 1, 0))
    await node.outlet.until(lambda: node.outlet.bodies("steps_completed"))


@lived
async def test_a_step_after_the_one_that_is_planned_waits_until_the_generation_is_stopped(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path, slot_wait_s=60.0)
    async with running(chosen) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            node.direct(1, hold_after=2)
            await rank.save(2, b"the last one")
            await _begin(node, rank, 3)
            node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
            assert isinstance(await control.hear(), Stop)
            await control.tell(GenerationStopped(1, 29501, 99))
            assert isinstance(await rank.hear(), Skip)


@lived
async def test_a_plan_that_is_given_up_lets_the_waiting_step_go_on(tmp_path: Path) -> None:
    chosen = settings(tmp_path, slot_wait_s=60.0)
    async with running(chosen) as node, training(node) as rank:
        node.direct(1, hold_after=2)
        await _begin(node, rank, 3)
        node.direct(1)
        assert isinstance(await rank.hear(), Slot)


@lived
async def test_a_plan_that_does_not_come_costs_one_wait_and_no_snapshot(tmp_path: Path) -> None:
    chosen = settings(tmp_path, slot_wait_s=0.05)
    async with running(chosen) as node, training(node) as rank:
        node.direct(1, hold_after=2)
        await rank.save(3, b"after the wait")
        await rank.save(4, b"without one")
        assert node.jobs.metrics().vault_snapshots_skipped_total == 0


@lived
async def test_the_planned_step_is_snapshotted_whatever_the_cadence(tmp_path: Path) -> None:
    chosen = settings(tmp_path, slot_wait_s=60.0)
    async with running(chosen) as node, training(node) as rank:
        node.direct(1, snapshot_every=10)
        await rank.save(10, b"every tenth")
        node.direct(1, snapshot_every=10, hold_after=13)
        assert await rank.ask(Begin(12)) == Unplanned(13)
        await rank.save(13, b"the planned one")
        await _begin(node, rank, 14)
        node.direct(1, snapshot_every=10)
        assert isinstance(await rank.hear(), Unplanned)


@lived
async def test_a_rank_that_waits_for_no_slot_waits_for_the_one_of_the_planned_step(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path, slot_wait_s=60.0)
    async with running(chosen) as node, training(node) as rank:
        slots = len(rank.maps)
        for step in range(slots):
            await rank.save(step, b"not recoverable yet")
        assert isinstance(await rank.ask(Begin(slots, 0.0)), Skip)
        node.direct(1, hold_after=slots + 1)
        await rank.tell(Begin(slots + 1, 0.0))
        await rank.tell(Progress(slots, 1, 0))
        await node.outlet.until(lambda: node.outlet.bodies("steps_completed"))
        node.direct(1, slots - 1, hold_after=slots + 1)
        assert isinstance(await rank.hear(), Slot)


@lived
async def test_a_planned_step_that_a_rank_has_passed_is_followed_by_the_next_of_the_cadence(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path, slot_wait_s=0.05)
    async with running(chosen) as node, training(node) as rank:
        node.direct(1, snapshot_every=5, hold_after=11)
        assert isinstance(await rank.ask(Begin(14)), Unplanned)
        await rank.save(15, b"in its place")
        chosen_again = await rank.ask(Begin(19))
        assert chosen_again == Unplanned(20)
        await rank.save(20, b"and nobody waits any more")
