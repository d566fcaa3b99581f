"""Memory for several askers at once: none waits for another one's pages, and nothing is missed."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.vault.memory.allocator import AllocationRequest, Allocator, MemoryShortError
from everstep_agent.vault.memory.capacity import MemoryLimits

_MIB = 1 << 20


class _Gauge:
    """A node with so much to spare, whatever was taken."""

    def __init__(self, available: int) -> None:
        self.available = available

    def available_bytes(self) -> int:
        return self.available


def _with_allocator(
    available: int,
    scenario: Callable[[Allocator], Awaitable[None]],
    limits: MemoryLimits | None = None,
) -> None:
    workers = ThreadPool("test", 1)

    async def life() -> None:
        await scenario(Allocator(workers, _Gauge(available), limits or MemoryLimits()))

    try:
        asyncio.run(life())
    finally:
        workers.close()


def test_a_replica_does_not_wait_for_the_pages_of_a_large_request() -> None:
    async def scenario(allocator: Allocator) -> None:
        ready: list[str] = []

        async def large() -> None:
            for region in await allocator.allocate(AllocationRequest(1, 64, 4096, "large")):
                region.release()
            ready.append("large")

        async def replica() -> None:
            region = await allocator.allocate_unpopulated(AllocationRequest(2, 1, 4096, "replica"))
            allocator.mark_populated(region)
            region.release()
            ready.append("replica")

        await asyncio.gather(large(), replica())
        assert ready == ["replica", "large"]
        assert allocator.used_bytes == 0

    _with_allocator(_MIB, scenario)


def test_what_is_promised_is_gone_for_the_next_one_who_asks() -> None:
    async def scenario(allocator: Allocator) -> None:
        asked = [allocator.allocate(AllocationRequest(1, 1, 6 * _MIB, "one")) for _ in range(2)]
        first, second = await asyncio.gather(*asked, return_exceptions=True)
        assert isinstance(first, list)
        assert isinstance(second, MemoryShortError)
        assert "jobs.memory_bytes_max leaves 4.0 MiB" in str(second)
        first[0].release()
        assert allocator.used_bytes == 0

    _with_allocator(100 * _MIB, scenario, MemoryLimits(total_bytes=10 * _MIB))


def test_nobody_is_refused_for_what_is_being_made_before_it_is_there() -> None:
    async def scenario(allocator: Allocator) -> None:
        asked = [allocator.allocate(AllocationRequest(1, 1, 6 * _MIB, "one")) for _ in range(3)]
        for (region,) in await asyncio.gather(*asked):
            region.release()

    # What the node says does not go down here, so each fits once nothing is under way.
    _with_allocator(10 * _MIB, scenario)


def test_who_gives_up_while_pages_are_made_owes_nothing() -> None:
    async def scenario(allocator: Allocator) -> None:
        task = asyncio.create_task(allocator.allocate(AllocationRequest(1, 64, 4096, "large")))
        replica = await allocator.allocate_unpopulated(AllocationRequest(2, 1, 4096, "asked later"))
        allocator.mark_populated(replica)
        replica.release()
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert allocator.used_bytes == 0
        assert await allocator.fits(AllocationRequest(1, 1, 10 * _MIB, "all"))

    _with_allocator(10 * _MIB, scenario)
