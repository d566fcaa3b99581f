"""Ranks that have nothing to save, or whose share is empty: their steps are whole, and restored."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import everstep
from everstep_common.launcher_messages import Start, Stop
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from integration.trainer_rank import environ
from integration.vault_world import Node, launcher, lived, plan, running, settings

RANKS = 3
STEP = 5
NAMES = ("v", "w")


def state(rank: int, value: float) -> Mapping[str, np.ndarray]:
    """Two arrays that are equal in all ranks; the last rank has no state at all."""
    return {} if rank == RANKS - 1 else {name: np.full(9, value) for name in NAMES}


def run_of(node: Node, generation: int, rank: int, ranks: int, value: float) -> everstep.Snapshots:
    run = everstep.init(environ(node, generation, rank, ranks))
    held = state(rank, value)
    snapshots = run.snapshots(held, raises=True, equal=held)
    found = snapshots.restore()
    assert found == (None if generation == 1 else STEP)
    wanted = 3.0 if found else value
    assert all((array == wanted).all() for array in held.values())
    return snapshots


def save(node: Node) -> None:
    for rank in range(RANKS):
        assert run_of(node, 1, rank, RANKS, 3.0).snapshot(STEP)


def resume(node: Node, ranks: int) -> None:
    for rank in range(ranks):
        run_of(node, 2, rank, ranks, 0.0)


@pytest.mark.parametrize("ranks", [RANKS, 1, 5])
@lived
async def test_a_rank_without_a_state_hinders_no_step(tmp_path: Path, ranks: int) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1, processes=RANKS))
        assert isinstance(await control.hear(), Start)
        await asyncio.to_thread(save, node)
        copies = {(1, rank, STEP, False) for rank in range(RANKS)}
        await node.outlet.until(lambda: copies <= set(node.outlet.copies()))
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
        assert isinstance(await control.hear(), Stop)
        await control.tell(GenerationStopped(1, 29501, 99))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        sources = tuple(node.source(node, STEP, rank) for rank in range(RANKS))
        assert len({source.layout for source in sources}) == RANKS
        node.order(start_generation=plan(2, sources, step=STEP, processes=ranks))
        assert isinstance(await control.hear(), Start)
        await asyncio.to_thread(resume, node, ranks)
