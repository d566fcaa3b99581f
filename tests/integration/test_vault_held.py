"""A planned restart: the last step before it is kept, and nobody begins a later one."""

from pathlib import Path

from everstep_common.trainer_messages import Begin, Progress, Skip, Slot, Start, Stop, Stopped
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
    await node.outlet.until(lambda: node.outlet.bodies("progress"))


@lived
async def test_a_step_after_the_one_that_is_planned_waits_until_the_generation_is_stopped(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path, begin_wait_s=60.0)
    async with running(chosen) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            node.direct(1, holds=True, hold_after=2)
            await rank.save(2, b"the last one")
            await _begin(node, rank, 3)
            node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
            assert isinstance(await control.hear(), Stop)
            await control.tell(Stopped(1, 29501, 99))
            assert isinstance(await rank.hear(), Skip)


@lived
async def test_a_plan_that_is_given_up_lets_the_waiting_step_go_on(tmp_path: Path) -> None:
    chosen = settings(tmp_path, begin_wait_s=60.0)
    async with running(chosen) as node, training(node) as rank:
        node.direct(1, holds=True, hold_after=2)
        await _begin(node, rank, 3)
        node.direct(1)
        assert isinstance(await rank.hear(), Slot)


@lived
async def test_a_plan_that_does_not_come_costs_one_wait_and_no_snapshot(tmp_path: Path) -> None:
    chosen = settings(tmp_path, begin_wait_s=0.05)
    async with running(chosen) as node, training(node) as rank:
        node.direct(1, holds=True, hold_after=2)
        await rank.save(3, b"after the wait")
        await rank.save(4, b"without one")
        assert node.jobs.metrics().vault_skips_total == 0
