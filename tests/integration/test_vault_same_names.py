"""Ranks that saved different bytes under one name: each gets its own back while it can be had."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_common.launcher_messages import Start
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
)

_STATES = (b"state of rank 0", b"state of rank 1")


@asynccontextmanager
async def _two_ranks(folder: Path) -> AsyncIterator[tuple[Node, Client]]:
    """A node on which both ranks have snapshotted their "w" at step 3, and its launcher."""
    async with running(settings(folder), "node-1") as node, launcher(node) as control:
        node.order(start_generation=plan(1, processes=2))
        await control.hear()
        for rank, state in enumerate(_STATES):
            async with trainer(node, rank=rank) as one:
                await one.save(3, state, "w")
        await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
        yield node, control


@asynccontextmanager
async def _restoring(
    node: Node, control: Client, sources: tuple[fleet_pb2.ShardSource, ...]
) -> AsyncIterator[tuple[Client, Client]]:
    """Both ranks of generation 2 on one node."""
    node.order(start_generation=plan(2, sources, step=3, processes=2))
    while not isinstance(await control.hear(), Start):
        continue
    async with (
        trainer(node, 0, generation=2, rank=0) as first,
        trainer(node, 0, generation=2, rank=1) as second,
    ):
        yield first, second


def _sources(node: Node, *ranks: int) -> tuple[fleet_pb2.ShardSource, ...]:
    return tuple(node.source(node, 3, rank) for rank in ranks)


@lived
async def test_each_rank_gets_its_own_bytes_from_the_memory_of_its_node(tmp_path: Path) -> None:
    async with (
        _two_ranks(tmp_path) as (node, control),
        _restoring(node, control, _sources(node, 0, 1)) as (first, second),
    ):
        assert await second.restore("w") == _STATES[1]
        assert await first.restore("w") == _STATES[0]


@lived
async def test_each_rank_gets_its_own_bytes_from_a_peer(tmp_path: Path) -> None:
    async with (
        _two_ranks(tmp_path / "a") as (node, _),
        running(settings(tmp_path / "b"), "node-2") as other,
        launcher(other) as control,
        _restoring(other, control, _sources(node, 0, 1)) as (first, second),
    ):
        assert await first.restore("w") == _STATES[0]
        assert await second.restore("w") == _STATES[1]


@lived
async def test_a_rank_whose_own_bytes_are_lost_gets_what_another_saved_under_that_name(
    tmp_path: Path,
) -> None:
    async with (
        _two_ranks(tmp_path / "a") as (node, _),
        running(settings(tmp_path / "b"), "node-2") as other,
        launcher(other) as control,
        _restoring(other, control, _sources(node, 0)) as (_, second),
    ):
        assert await second.restore("w") == _STATES[0]
