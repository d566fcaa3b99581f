"""Slots of the next generation: made before its processes ask, and given back if they do not."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

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
)

_SLOT_BYTES = 1024 * 1024
_SLOTS = 3


def _memory(node: Node) -> int:
    return node.jobs.metrics().vault_memory_bytes


@asynccontextmanager
async def _second_generation(folder: Path, **values: object) -> AsyncIterator[tuple[Node, Client]]:
    """A node whose second generation begins from a step that it has itself: one full slot."""
    chosen = settings(folder, slots_per_rank=_SLOTS, **values)
    async with running(chosen) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        async with trainer(node, _SLOT_BYTES) as rank:
            await rank.save(1, b"state after 1")
            await node.outlet.until(lambda: node.outlet.copies())
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
        await control.hear()
        await control.tell(GenerationStopped(1, 29501, 99))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        await node.until_memory_is(_SLOT_BYTES)
        node.order(start_generation=plan(2, (node.source(node, 1),), step=1))
        await control.hear()
        yield node, control


@lived
async def test_they_are_there_before_the_process_asks_and_are_what_it_gets(tmp_path: Path) -> None:
    async with _second_generation(tmp_path) as (node, _):
        await node.until_memory_is((1 + _SLOTS) * _SLOT_BYTES)
        async with trainer(node, _SLOT_BYTES, generation=2) as rank:
            assert _memory(node) == (1 + _SLOTS) * _SLOT_BYTES
            assert await rank.restore() == b"state after 1"
            await rank.save(2, b"state after 2")
            await node.outlet.until(lambda: (2, 0, 2, False) in node.outlet.copies())


@lived
async def test_of_another_size_they_are_given_back(tmp_path: Path) -> None:
    async with _second_generation(tmp_path) as (node, _):
        await node.until_memory_is((1 + _SLOTS) * _SLOT_BYTES)
        async with trainer(node, 4 * _SLOT_BYTES, generation=2):
            await node.until_memory_is((1 + 4 * _SLOTS) * _SLOT_BYTES)


@lived
async def test_they_go_with_a_generation_that_never_asked(tmp_path: Path) -> None:
    async with _second_generation(tmp_path) as (node, control):
        await node.until_memory_is((1 + _SLOTS) * _SLOT_BYTES)
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=2))
        await control.hear()
        await control.tell(GenerationStopped(2, 29501, 99))
        await node.until_memory_is(_SLOT_BYTES)


@lived
async def test_they_go_to_whoever_needs_memory_now(tmp_path: Path) -> None:
    budget = (1 + 2 * _SLOTS) * _SLOT_BYTES
    async with _second_generation(tmp_path, memory_bytes_max=budget) as (node, _):
        await node.until_memory_is((1 + _SLOTS) * _SLOT_BYTES)
        async with launcher(node, job="other") as control:
            node.order(start_generation=_of_another_job())
            await control.hear()
            async with trainer(node, 2 * _SLOT_BYTES, job="other"):
                await node.until_memory_is((1 + 2 * _SLOTS) * _SLOT_BYTES)


@lived
async def test_nothing_is_made_ahead_where_not_all_of_it_fits(tmp_path: Path) -> None:
    budget = _SLOTS * _SLOT_BYTES
    async with (
        _second_generation(tmp_path, memory_bytes_max=budget) as (node, _),
        trainer(node, _SLOT_BYTES, generation=2),
    ):
        await node.until_memory_is(_SLOTS * _SLOT_BYTES)


def _of_another_job() -> fleet_pb2.StartGeneration:
    order = plan(1)
    order.job = "other"
    return order
