"""A node that waits as a spare: its memory is there before it is needed, and counted like all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_common.orders import SpareMemory
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from everstep_proto.record_codec import from_wire
from fakes.waits import eventually
from integration.vault_world import (
    KEY,
    Client,
    Node,
    identify,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

_COPY_BYTES = 1024 * 1024
# What a rank with such a copy is expected to ask for: a 32nd more, and 128 KiB.
_SLOT_BYTES = _COPY_BYTES + _COPY_BYTES // 32 + 128 * 1024
_SLOTS = 3
_READY_BYTES = _COPY_BYTES + _SLOTS * _SLOT_BYTES


def _memory(node: Node) -> int:
    return node.jobs.metrics().vault_memory_bytes


async def _until_ready_is(node: Node, size_bytes: int) -> None:
    """Wait until so much is made: it is counted before it is."""
    job = node.jobs.known("demo")
    assert job is not None
    arrivals, slots = job.vault.receive_buffers, job.vault.preallocated_slots
    await eventually(lambda: arrivals.idle_bytes + slots.idle_bytes == size_bytes)
    assert _memory(node) == size_bytes


def _wait_as_spare(
    node: Node,
    copy_bytes: int = _COPY_BYTES,
    processes: int = 1,
    ahead: tuple[fleet_pb2.ShardSource, ...] = (),
) -> None:
    wanted = fleet_pb2.SpareMemory(
        job="demo",
        copy_bytes=copy_bytes,
        processes=processes,
        term=1,
        ahead=ahead,
        transfer_key=KEY if ahead else b"",
    )
    identify(wanted)
    node.jobs.on_spare_memory(from_wire(SpareMemory, wanted))


@asynccontextmanager
async def _spare(folder: Path, **values: object) -> AsyncIterator[tuple[Node, Client]]:
    """A node whose launcher waits, with the memory of a rank."""
    chosen = settings(folder, slots_per_rank=_SLOTS, **values)
    async with running(chosen, "node-2") as node, launcher(node) as control:
        _wait_as_spare(node)
        await _until_ready_is(node, _READY_BYTES)
        yield node, control


@asynccontextmanager
async def _member(folder: Path, payload: bytes) -> AsyncIterator[Node]:
    """A node with a verified snapshot of step 1."""
    async with running(settings(folder)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        async with trainer(node, _COPY_BYTES) as rank:
            await rank.save(1, payload)
            await node.outlet.until(lambda: node.outlet.copies())
        yield node


@lived
async def test_what_it_fetches_and_its_slots_come_into_the_memory_that_was_made(
    tmp_path: Path,
) -> None:
    payload = b"state" * 200_000
    async with (
        _member(tmp_path / "1", payload) as member,
        _spare(tmp_path / "2") as (node, control),
    ):
        member.order(start_generation=plan(2))
        await member.outlet.until(lambda: member.outlet.copies())
        node.order(start_generation=plan(2, (member.source(member, 1),), step=1))
        await control.hear()
        await node.outlet.until(lambda: (1, 0, 1, True) in node.outlet.copies())
        async with trainer(node, _COPY_BYTES, generation=2) as rank:
            assert await rank.restore() == payload
            await rank.save(2, b"state after 2")
            await node.outlet.until(lambda: (2, 0, 2, False) in node.outlet.copies())
            # Not a byte more than it had while it waited.
            assert _memory(node) == _READY_BYTES


@lived
async def test_it_goes_with_the_launcher(tmp_path: Path) -> None:
    async with _spare(tmp_path) as (node, control):
        control.close()
        await node.until_memory_is(0)


@lived
async def test_it_goes_with_the_job(tmp_path: Path) -> None:
    async with _spare(tmp_path) as (node, _):
        node.order(end_job=fleet_pb2.EndJob(job="demo"))
        await node.until_memory_is(0)


@lived
async def test_it_goes_to_whoever_needs_memory_now(tmp_path: Path) -> None:
    async with (
        _spare(tmp_path, memory_bytes_max=_READY_BYTES) as (node, _),
        launcher(node, job="other") as control,
    ):
        order = plan(1)
        order.job = "other"
        node.order(start_generation=order)
        await control.hear()
        async with trainer(node, _COPY_BYTES, job="other"):
            assert _memory(node) == _SLOTS * _COPY_BYTES


@lived
async def test_of_a_larger_state_it_is_made_anew_and_of_a_smaller_one_it_stays(
    tmp_path: Path,
) -> None:
    async with _spare(tmp_path) as (node, _):
        larger = 2 * _COPY_BYTES
        _wait_as_spare(node, larger)
        slot_bytes = larger + larger // 32 + 128 * 1024
        ready = larger + _SLOTS * slot_bytes
        await _until_ready_is(node, ready)
        _wait_as_spare(node, larger - 8192, 2)
        # What is there stays; for the second rank it is as large as it was asked for.
        await _until_ready_is(node, 2 * ready - (1 + _SLOTS) * 8192)


@lived
async def test_a_job_that_begins_without_a_state_keeps_none_of_it(tmp_path: Path) -> None:
    async with _spare(tmp_path) as (node, control):
        node.order(start_generation=plan(2))
        await control.hear()
        await node.until_memory_is(0)


@lived
async def test_what_is_kept_of_a_job_that_failed_is_not_evicted_for_it(tmp_path: Path) -> None:
    chosen = settings(tmp_path, slots_per_rank=_SLOTS, memory_bytes_max=_READY_BYTES)
    async with running(chosen) as node:
        async with launcher(node, job="failed") as control:
            order = plan(1)
            order.job = "failed"
            node.order(start_generation=order)
            await control.hear()
            async with trainer(node, _COPY_BYTES, job="failed") as rank:
                await rank.save(1, b"state after 1")
                await node.outlet.until(lambda: node.outlet.copies("failed"))
            node.order(end_job=fleet_pb2.EndJob(job="failed"))
            await control.hear()
        kept = _memory(node)
        async with launcher(node) as control:
            _wait_as_spare(node)
            # The copy's memory fits beside it, the slots do not.
            await node.until_memory_is(kept + _COPY_BYTES)


@lived
async def test_a_node_with_a_place_makes_none(tmp_path: Path) -> None:
    async with _spare(tmp_path) as (node, control):
        node.order(start_generation=plan(2))
        await control.hear()
        await node.until_memory_is(0)
        _wait_as_spare(node)
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=2))
        await control.hear()
        await control.tell(GenerationStopped(2, 29501, 99))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        assert _memory(node) == 0
        _wait_as_spare(node)
        await _until_ready_is(node, _READY_BYTES)


@lived
async def test_it_is_made_when_the_launcher_is_back_at_an_agent_that_started_again(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path, slots_per_rank=_SLOTS)
    async with running(chosen, "node-2") as node, launcher(node):
        pass
    async with running(chosen, "node-2") as node:
        _wait_as_spare(node)
        assert _memory(node) == 0
        async with launcher(node):
            await _until_ready_is(node, _READY_BYTES)


@lived
async def test_it_fetches_what_a_silent_member_had_and_restores_from_its_own_memory(
    tmp_path: Path,
) -> None:
    payload = b"state" * 200_000
    async with _spare(tmp_path / "2") as (node, control):
        async with _member(tmp_path / "1", payload) as member:
            source = member.source(member, 1)
            _wait_as_spare(node, ahead=(source,))
            await node.outlet.until(lambda: (1, 0, 1, True) in node.outlet.copies())
            counts = node.jobs.metrics()
            assert counts.vault_prefetched_copies_total == 1
            assert counts.vault_prefetched_bytes_total == source.size_bytes
            # Not a byte more than it had while it waited.
            await node.until_memory_is(_READY_BYTES)
        # Nobody is left to fetch from.
        node.order(start_generation=plan(2, (node.source(node, 1),), step=1))
        await control.hear()
        async with trainer(node, _COPY_BYTES, generation=2) as rank:
            assert await rank.restore() == payload


@lived
async def test_what_was_fetched_of_a_member_that_came_back_goes_with_the_next_step(
    tmp_path: Path,
) -> None:
    async with (
        _member(tmp_path / "1", b"state") as member,
        _spare(tmp_path / "2") as (node, _),
    ):
        _wait_as_spare(node, ahead=(member.source(member, 1),))
        await node.outlet.until(lambda: (1, 0, 1, True) in node.outlet.copies())
        node.direct(1, 1)
        assert node.jobs.metrics().vault_prefetches_discarded_total == 1
        node.direct(1, 2)
        await node.outlet.until(lambda: not node.outlet.copies())
        _wait_as_spare(node)
        await _until_ready_is(node, _READY_BYTES)
        assert node.jobs.metrics().vault_prefetches_discarded_total == 1


@lived
async def test_a_guard_that_has_fetched_what_another_node_only_had_has_discarded_nothing(
    tmp_path: Path,
) -> None:
    async with (
        _member(tmp_path / "1", b"state") as member,
        _spare(tmp_path / "2") as (node, _),
    ):
        _wait_as_spare(node, copy_bytes=0, ahead=(member.source(member, 1),))
        await node.outlet.until(lambda: (1, 0, 1, True) in node.outlet.copies())
        node.direct(1, 1)
        counts = node.jobs.metrics()
        assert (counts.vault_prefetched_copies_total, counts.vault_prefetches_discarded_total) == (
            1,
            0,
        )
        assert (1, 0, 1, True) in node.outlet.copies()


@lived
async def test_a_silent_member_whose_copies_cannot_be_had_costs_a_spare_nothing(
    tmp_path: Path,
) -> None:
    async with _spare(tmp_path / "2") as (node, _):
        async with _member(tmp_path / "1", b"state") as member:
            source = member.source(member, 1)
        _wait_as_spare(node, ahead=(source,))
        _wait_as_spare(node)
        await _until_ready_is(node, _READY_BYTES)
        counts = node.jobs.metrics()
        assert (counts.vault_prefetched_copies_total, counts.vault_prefetches_discarded_total) == (
            0,
            1,
        )


@lived
async def test_a_spare_keeps_the_replicas_of_a_job_on_one_node_and_goes_on_from_them(
    tmp_path: Path,
) -> None:
    payload = b"state" * 200_000
    async with running(settings(tmp_path / "2"), "node-2") as node, launcher(node) as control:
        async with running(settings(tmp_path / "1")) as member, launcher(member) as first:
            node.direct(1)
            member.order(start_generation=plan(1))
            await first.hear()
            member.direct(1, target=node)
            async with trainer(member, _COPY_BYTES) as rank:
                await rank.save(1, payload)
                await node.outlet.until(lambda: (1, 0, 1, True) in node.outlet.copies())
        node.order(start_generation=plan(2, (node.source(node, 1),), step=1))
        await control.hear()
        async with trainer(node, _COPY_BYTES, generation=2) as rank:
            assert await rank.restore() == payload


@lived
async def test_a_member_whose_generation_has_stopped_fetches_what_another_one_only_has(
    tmp_path: Path,
) -> None:
    payload = b"state" * 200_000
    async with (
        _member(tmp_path / "1", payload) as member,
        running(settings(tmp_path / "2"), "node-2") as node,
        launcher(node) as control,
    ):
        node.order(start_generation=plan(1, first_rank=1, node_count=2))
        await control.hear()
        async with trainer(node, _COPY_BYTES, rank=1) as rank:
            await rank.save(1, payload)
            await node.outlet.until(lambda: (1, 1, 1, False) in node.outlet.copies())
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
        await control.hear()
        await control.tell(GenerationStopped(1, 29501, 99))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        held = _memory(node)
        _wait_as_spare(node, 0, 0, (member.source(member, 1),))
        await node.outlet.until(lambda: (1, 0, 1, True) in node.outlet.copies())
        # The copy alone: it gets no memory for ranks.
        assert held < _memory(node) <= held + _COPY_BYTES
