"""The library on a real agent, from every step of a generation to the first of the next one."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

import everstep
from everstep_common.launcher_messages import Start, Stop
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from integration.trainer_rank import environ, free_slots
from integration.vault_world import Node, launcher, plan, running, settings

STEPS = 8
# Several pieces, and pages that a copy of another step would show in.
SIZE = 40 * 1024 * 1024


def train(node: Node, **choice: object) -> int:
    """Save every step of the first generation; return how many were not saved."""
    state = np.zeros(SIZE, dtype=np.uint8)
    run = everstep.init(environ(node, 1))
    snapshots = run.snapshots({"w": state, "none": np.zeros(0)}, **choice)  # type: ignore[arg-type]
    assert snapshots.restore() is None
    for step in range(STEPS):
        snapshots.settle()
        state += 1
        snapshots.snapshot(step)
        run.step(step)
    snapshots.join()
    return run.unsaved_steps


def resume(node: Node) -> tuple[int | None, np.ndarray]:
    state = np.zeros(SIZE, dtype=np.uint8)
    run = everstep.init(environ(node, 2))
    step = run.snapshots({"w": state, "none": np.zeros(0)}).restore()
    return step, state


@pytest.mark.parametrize("choice", [{}, {"overlap": True}, {"hash": "trainer", "overlap": True}])
def test_every_step_is_saved_and_the_last_one_comes_back(
    tmp_path: Path, choice: dict[str, object]
) -> None:
    async def scenario() -> None:
        async with running(settings(tmp_path)) as node, launcher(node) as control:
            node.order(start_generation=plan(1))
            assert isinstance(await control.hear(), Start)
            controller = asyncio.create_task(free_slots(node))
            assert await asyncio.to_thread(train, node, **choice) == 0
            last = (1, 0, STEPS - 1, False)
            await node.outlet.until(lambda: last in node.outlet.copies())
            controller.cancel()

            node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
            assert isinstance(await control.hear(), Stop)
            await control.tell(GenerationStopped(1, 29501, 99))
            await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
            node.order(start_generation=plan(2, (node.source(node, STEPS - 1),), step=STEPS - 1))
            assert isinstance(await control.hear(), Start)
            step, state = await asyncio.to_thread(resume, node)
            assert step == STEPS - 1
            assert (state == STEPS).all()

    asyncio.run(scenario())
