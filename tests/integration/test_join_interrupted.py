"""An agent is killed after any of its commits while a launcher joins: the next one tells of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from everstep_agent.jobs.job.context import Environment
from everstep_common.launcher_messages import End, Start
from everstep_proto.generated import fleet_pb2
from integration.agent_prefixes import AgentMemory
from integration.storage_world import storage_in
from integration.vault_world import (
    JOB_ID,
    Client,
    Kept,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)


async def _expect_told(node: Node, **asked: object) -> None:
    """The launcher comes back, and the controller is told of it."""
    async with launcher(node, **asked):
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))


async def _expect_copy(node: Node) -> None:
    """What the job before has left is still there."""
    await node.outlet.until(lambda: (1, 0, 1, False) in node.outlet.copies_of(JOB_ID))


async def _begun(node: Node, control: Client, order: fleet_pb2.StartGeneration) -> None:
    node.order(start_generation=order)
    while not isinstance(await control.hear(), Start):
        pass


@lived
async def test_the_launcher_of_a_job_with_storage(tmp_path: Path) -> None:
    place = storage_in(tmp_path / "steps")
    async with running(settings(tmp_path / "run")) as node:
        memory = AgentMemory(tmp_path / "run")
        async with launcher(node, storage=place) as control:
            await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
            await _begun(node, control, plan(1))
            left = list(memory.prefixes(tmp_path))
    for folder in left:
        async with running(settings(folder)) as node:
            await _expect_told(node, storage=place)


async def _ended(node: Node) -> None:
    """A job has failed, and what it had snapshotted is kept."""
    async with launcher(node) as control:
        await _begun(node, control, plan(1))
        async with trainer(node) as rank:
            await rank.save(1, b"state after 1")
            await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 1, False)})
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
        while not isinstance(await control.hear(), End):
            pass


def _continued(node: Node) -> dict[str, object]:
    """Another job goes on from it."""
    order = plan(2, (node.source(node, 1),), step=1, job_id="demo-2", lineage_id=JOB_ID)
    return {"start_generation": order}


def _kept(node: Node) -> dict[str, object]:
    """Another job is to go on from it, and waits for nodes."""
    return {"keep_job": fleet_pb2.KeepJob(job="demo", job_id="demo-2", lineage_id=JOB_ID)}


def _awaited(node: Node) -> dict[str, object]:
    """The controller has not heard of its end: its journal is from before it."""
    return {"hold_launcher": fleet_pb2.HoldLauncher(job="demo", job_id=JOB_ID)}


def _resumed(node: Node) -> dict[str, object]:
    """So it has not, and begins the job's next generation."""
    return {"start_generation": plan(2, (node.source(node, 1),), step=1)}


@pytest.mark.parametrize("order", [_continued, _kept, _awaited, _resumed])
@lived
async def test_the_launcher_of_a_job_of_which_the_last_one_has_left_something(
    tmp_path: Path, order: Callable[[Node], dict[str, object]]
) -> None:
    kept = Kept()
    world = Environment(stored_fds={}, keeper=kept)
    async with running(settings(tmp_path / "run"), world=world) as node:
        await _ended(node)
        async with launcher(node):
            await node.outlet.until(lambda: len(node.outlet.bodies("launcher_joined")) == 2)
            memory = AgentMemory(tmp_path / "run")
            node.order(**order(node))
            left = list(memory.prefixes(tmp_path))
            handed = [Environment(stored_fds=kept.hand_over(), keeper=Kept()) for _ in left]
    kept.close()
    for folder, world in zip(left, handed, strict=True):
        async with running(settings(folder), world=world) as node:
            await _expect_told(node)
            await _expect_copy(node)
