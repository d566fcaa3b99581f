"""Memory that copies arrive in: owed before it is there, kept after a cut, given back in time."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.vault.memory.allocator import Allocator, MemoryShortError, Requester
from everstep_agent.vault.memory.capacity import MemoryLimits
from everstep_agent.vault.memory.pages import PAGE_BYTES
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_agent.vault.transfer.receive_buffers import ReceiveBuffers
from integration.vault_world import TIMEOUT_S, lived

_SIZE = 6 * PAGE_BYTES


class _Gauge:
    """A node with room for ten pages, however many of them are in use."""

    def available_bytes(self) -> int:
        return 10 * PAGE_BYTES


@asynccontextmanager
async def _arrivals(kept_s: float = 3600.0) -> AsyncIterator[tuple[ReceiveBuffers, Allocator]]:
    workers = ThreadPool("test", 1)
    allocator = Allocator(workers, _Gauge(), MemoryLimits(0, 0, 0))
    try:
        yield ReceiveBuffers(allocator, lambda: Requester(0), kept_s), allocator
    finally:
        workers.close()


def _expected(step: int = 1) -> CopyRef:
    return CopyRef(CopyKey(1, 0, step), _SIZE, b"root")


@lived
async def test_memory_that_is_still_to_be_filled_is_given_to_nobody_else() -> None:
    async with _arrivals() as (arrivals, _):
        first = await arrivals.open_copy(_expected(1), "one")
        with pytest.raises(MemoryShortError):
            await arrivals.open_copy(_expected(2), "two")
        arrivals.keep_partial(first)  # nothing had come: it is given back at once
        second = await arrivals.open_copy(_expected(2), "two")
        arrivals.keep_partial(second)


@lived
async def test_what_came_before_a_cut_is_there_for_the_same_copy_only() -> None:
    async with _arrivals() as (arrivals, allocator):
        arrival = await arrivals.open_copy(_expected(1), "one")
        arrival.settle_stripe(arrival.claim_stripe(0), b"digest")
        arrivals.keep_partial(arrival)
        assert arrivals.received_bytes(_expected(1)) == _SIZE
        assert arrivals.received_bytes(_expected(2)) == 0
        assert await arrivals.open_copy(_expected(1), "one") is arrival
        arrivals.keep_partial(arrival)
        assert arrivals.release_idle()
        assert not arrivals.release_idle()
        assert allocator.used_bytes == 0


@lived
async def test_what_came_before_a_cut_is_given_back_when_nobody_goes_on() -> None:
    async with _arrivals(kept_s=0.01) as (arrivals, allocator):
        arrival = await arrivals.open_copy(_expected(), "one")
        arrival.settle_stripe(arrival.claim_stripe(0), b"digest")
        gone = asyncio.Event()
        closed = arrival.region.on_close
        assert closed is not None

        def seen() -> None:
            closed()
            gone.set()

        arrival.region.on_close = seen
        arrivals.keep_partial(arrival)
        async with asyncio.timeout(TIMEOUT_S):
            await gone.wait()
        assert arrivals.idle_bytes == allocator.used_bytes == 0


@lived
async def test_a_copy_that_is_not_needed_any_more_is_not_waited_for() -> None:
    async with _arrivals() as (arrivals, allocator):
        arrival = await arrivals.open_copy(_expected(), "one")
        arrival.settle_stripe(arrival.claim_stripe(0), b"digest")
        arrivals.keep_partial(arrival)
        arrivals.drop_partial(lambda key: key.step > 1)
        assert arrivals.received_bytes(_expected()) == _SIZE
        arrivals.drop_partial(lambda key: key.step == 1)
        assert allocator.used_bytes == 0


@lived
async def test_memory_of_an_earlier_replica_brings_nothing_of_it_along() -> None:
    async with _arrivals() as (arrivals, _):
        first = await arrivals.open_copy(_expected(1), "one")
        first.region.writable()[:] = b"x" * first.region.size_bytes
        region = arrivals.take_region(first)
        region.release()
        smaller = CopyRef(CopyKey(1, 0, 2), _SIZE - 2 * PAGE_BYTES, b"root")
        second = await arrivals.open_copy(smaller, "two")
        assert second.region is region
        # Whoever restores gets the whole region; what will not be received must not be there.
        assert bytes(region.view()[smaller.size_bytes :]) == bytes(2 * PAGE_BYTES)
        arrivals.keep_partial(second)


@lived
async def test_memory_that_another_process_was_given_is_never_used_again() -> None:
    async with _arrivals() as (arrivals, allocator):
        for share in (Region.open_read_only, Region.freeze):
            arrival = await arrivals.open_copy(_expected(), "one")
            region = arrivals.take_region(arrival)
            fd = share(region)
            region.release()
            assert arrivals.idle_bytes == allocator.used_bytes == 0
            if fd is not True:
                os.close(fd)


@lived
async def test_memory_of_one_job_is_not_used_for_the_next_one_of_its_name() -> None:
    async with _arrivals() as (arrivals, allocator):
        still_read = arrivals.take_region(await arrivals.open_copy(_expected(1), "one"))
        spare = arrivals.take_region(
            await arrivals.open_copy(CopyRef(CopyKey(1, 0, 2), PAGE_BYTES, b""), "b")
        )
        spare.release()
        arrivals.close()
        assert arrivals.idle_bytes == 0
        still_read.release()
        assert arrivals.idle_bytes == allocator.used_bytes == 0
