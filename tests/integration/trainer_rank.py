"""A rank of the library in a thread of the test, on a real agent; the test plays the controller."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import everstep
from everstep_agent.storage.formats.records import (
    FileDescription,
    description_name,
    open_description,
)
from integration.storage_world import stored
from integration.vault_world import Node


def environ(node: Node, generation: int, rank: int = 0, world_size: int = 1) -> dict[str, str]:
    return {
        "EVERSTEP_SOCKET": str(node.settings.socket_path),
        "EVERSTEP_JOB": "demo",
        "EVERSTEP_GENERATION": str(generation),
        "EVERSTEP_TOKEN": "secret",
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
    }


async def free_slots(node: Node) -> None:
    """Do the controller's part: what is verified here is recoverable, and frees older steps."""
    newest = -1
    while True:
        steps = [step for _, _, step, _ in node.outlet.copies()]
        if (last := max(steps, default=-1)) > newest:
            newest = last
            node.direct(1, newest)
        await asyncio.sleep(0.005)


def save_all(
    node: Node, state: Mapping[str, object], change: Callable[[int], None], steps: int
) -> None:
    """Change the state and save it, step after step, from the beginning."""
    run = everstep.init(environ(node, 1))
    snapshots = run.snapshots(state, raises=True)
    assert snapshots.restore() is None
    for step in range(steps):
        change(step)
        assert snapshots.snapshot(step)
        run.step(step)


async def brought(
    node: Node,
    folder: Path,
    state: Mapping[str, object],
    change: Callable[[int], None],
    steps: int,
) -> FileDescription:
    """Save all steps and have the last one brought to storage; return what lies beside it."""
    controller = asyncio.create_task(free_slots(node))
    last = steps - 1
    try:
        await asyncio.to_thread(save_all, node, state, change, steps)
        await node.outlet.until(lambda: (1, 0, last, False) in node.outlet.copies())
    finally:
        controller.cancel()
    node.direct(1, last, persist_steps=[last])
    await stored(node, last)
    record = folder / f"demo/gen-1/step-{last}" / description_name(0)
    return open_description(record.read_bytes())
