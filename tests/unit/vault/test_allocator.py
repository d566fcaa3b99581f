"""Who gets memory, whose kept memory goes for it, and what is left when it does not work out."""

import asyncio
import re
import resource
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest

from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.vault.memory.allocator import (
    AllocationRequest,
    Allocator,
    MemoryShortError,
    Requester,
)
from everstep_agent.vault.memory.capacity import MemoryForecast, MemoryLimits, MemoryUse
from everstep_agent.vault.memory.gauges import HugePagePool
from everstep_agent.vault.memory.pages import HUGE_PAGE_BYTES, HugePages
from everstep_agent.vault.memory.quota import Promise
from everstep_agent.vault.memory.region import Region, allocate_region

_PAGE = 4096


class _Plenty:
    def available_bytes(self) -> int:
        return 1 << 62


@dataclass
class _Bytes:
    """So many bytes, whatever was taken."""

    available: int

    def available_bytes(self) -> int:
        return self.available


@dataclass
class _Kept:
    """What ended jobs keep, by user."""

    regions: list[tuple[int, Region]] = field(default_factory=list)
    # Whose memory was to be left alone, each time that somebody asked.
    spared: list[Collection[str]] = field(default_factory=list)

    def evict(self, spared: Collection[str] = ()) -> bool:
        if not self.regions:
            return False
        self.regions.pop(0)[1].release()
        return True

    def evictable(self, uid: int, spared: Collection[str] = ()) -> MemoryUse:
        self.spared.append(spared)
        sizes = [(owner, region.size_bytes) for owner, region in self.regions]
        return MemoryUse(
            sum(size for _, size in sizes), sum(size for own, size in sizes if own == uid)
        )


@pytest.fixture
def workers() -> Iterator[ThreadPool]:
    made = ThreadPool("test", 2)
    yield made
    made.close()


@contextmanager
def _files_no_larger_than(size_bytes: int) -> Iterator[None]:
    """Let the kernel refuse what is larger; Python ignores the signal that comes with it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_the_kernel_refuses_is_said_and_nothing_stays_counted(workers: ThreadPool) -> None:
    allocator = Allocator(workers, _Plenty(), MemoryLimits())
    said = "the kernel has no memory left for 2 x 1.0 MiB of snapshots (File too large)"
    with _files_no_larger_than(1 << 16), pytest.raises(MemoryShortError, match=re.escape(said)):
        asyncio.run(allocator.allocate(AllocationRequest(1, 2, 1 << 20, "test")))
    assert allocator.used_bytes == 0


def test_a_pool_that_gives_less_than_it_has_opens_no_way_around_the_budget(
    workers: ThreadPool,
) -> None:
    """As where a control group limits huge pages: what comes instead is ordinary memory."""
    if HugePagePool().available_bytes():
        pytest.skip("this machine has huge pages to give")
    node = (_Bytes(4 * _PAGE), MemoryLimits(), HugePages.EXPLICIT, _Bytes(8 * HUGE_PAGE_BYTES))
    allocator = Allocator(workers, *node)
    with pytest.raises(MemoryShortError, match=re.escape("2 x 8.0 KiB would fit")):
        asyncio.run(allocator.allocate(AllocationRequest(1, 2, 3 * _PAGE, "test")))
    assert allocator.used_bytes == 0


def test_a_copy_is_of_ordinary_memory_whatever_the_pool_has(workers: ThreadPool) -> None:
    node = (_Bytes(4 * _PAGE), MemoryLimits(), HugePages.EXPLICIT, _Bytes(8 * HUGE_PAGE_BYTES))
    allocator, source = Allocator(workers, *node), allocate_region(5 * _PAGE, "test")
    with pytest.raises(MemoryShortError, match=re.escape("1 x 16.0 KiB would fit")):
        asyncio.run(allocator.duplicate(Requester(1), source, 5 * _PAGE))
    source.release()
    assert allocator.used_bytes == 0


class _Promised:
    """What other jobs were promised."""

    def __init__(self, *promises: Promise) -> None:
        self.promises = promises

    def standing(self) -> Sequence[Promise]:
        return self.promises


def test_who_comes_after_a_promise_gets_what_it_leaves(workers: ThreadPool) -> None:
    allocator = Allocator(workers, _Bytes(10 * _PAGE), MemoryLimits())
    allocator.promises = _Promised(Promise("first", 1, 8 * _PAGE))

    async def life() -> None:
        late = AllocationRequest(2, 1, 3 * _PAGE, "test", "late", after_promises=True)
        assert not await allocator.fits(late)
        assert not await allocator.fits(replace(late, after_promises=False, spare=True))
        assert await allocator.fits(replace(late, job="first", uid=1))
        # A job that runs already: its replicas must not wait for one that does not.
        assert await allocator.fits(replace(late, after_promises=False))

    asyncio.run(life())


def test_what_a_promised_job_has_ready_is_not_freed_for_who_comes_after_it(
    workers: ThreadPool,
) -> None:
    allocator, kept = Allocator(workers, _Plenty(), MemoryLimits(total_bytes=3 * _PAGE)), _Kept()
    allocator.evictable = kept
    allocator.promises = _Promised(Promise("first", 1, 2 * _PAGE))
    forecast = MemoryForecast(processes=1, snapshot_bytes=_PAGE, slots=2, replicas=False)
    asyncio.run(allocator.forecast_refusal(Requester(2, "late", after_promises=True), forecast))
    asyncio.run(allocator.forecast_refusal(Requester(1, "first", after_promises=True), forecast))
    assert kept.spared == [frozenset({"first"})]


@pytest.mark.parametrize("turns", [1, 100, 5000])
def test_who_is_cancelled_while_pages_come_leaves_nothing_behind(
    workers: ThreadPool, turns: int
) -> None:
    allocator = Allocator(workers, _Plenty(), MemoryLimits())

    async def cancelled() -> None:
        work = asyncio.create_task(allocator.allocate(AllocationRequest(1, 3, 64 << 20, "test")))
        for _ in range(turns):
            await asyncio.sleep(0)
        work.cancel()
        (result,) = await asyncio.gather(work, return_exceptions=True)
        for region in result if isinstance(result, list) else ():
            region.release()  # it was faster
        await allocator.until_freed()

    asyncio.run(cancelled())
    assert allocator.used_bytes == 0


def test_kept_memory_goes_only_where_its_going_helps(workers: ThreadPool) -> None:
    limits = MemoryLimits(total_bytes=4 * _PAGE, per_user_bytes=2 * _PAGE)
    allocator, kept = Allocator(workers, _Plenty(), limits), _Kept()
    allocator.evictable = kept

    async def life() -> None:
        for uid in (1, 2):
            (region,) = await allocator.allocate(AllocationRequest(uid, 1, _PAGE, "kept"))
            kept.regions.append((uid, region))
        # More than user 3 may ever have: nobody else's memory is touched for it.
        with pytest.raises(MemoryShortError, match="would fit"):
            await allocator.allocate(AllocationRequest(3, 3, _PAGE, "test"))
        assert len(kept.regions) == 2
        given = await allocator.allocate(AllocationRequest(3, 2, _PAGE, "test"))
        assert len(kept.regions) == 2
        given += await allocator.allocate(AllocationRequest(4, 1, _PAGE, "test"))
        assert [uid for uid, _ in kept.regions] == [2]
        for region in given:
            region.release()

    asyncio.run(life())
    kept.evict()
    assert allocator.used_bytes == 0


def test_memory_that_is_still_being_freed_is_waited_for_before_more_is_taken(
    workers: ThreadPool,
) -> None:
    """Much memory is freed in a thread; until then it must not look as if nothing had gone."""
    size = 16 * 1024 * 1024

    async def scenario() -> None:
        limits = MemoryLimits(0, 2 * size, 0)
        allocator = Allocator(workers, _Plenty(), limits, HugePages.NONE)
        kept = _Kept()
        allocator.evictable = kept
        for uid in (1, 2):
            (region,) = await allocator.allocate(AllocationRequest(uid, 1, size, "kept", f"j{uid}"))
            kept.regions.append((uid, region))
        (region,) = await allocator.allocate(AllocationRequest(3, 1, size, "new", "j3"))
        assert [uid for uid, _ in kept.regions] == [2]
        region.release()
        kept.regions.pop()[1].release()
        (region,) = await allocator.allocate(AllocationRequest(3, 1, 2 * size, "all", "j3"))
        region.release()

    asyncio.run(scenario())
