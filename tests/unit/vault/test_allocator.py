"""Who gets memory, whose kept memory goes for it, and what is left when it does not work out."""

import asyncio
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from everstep_agent.vault.allocator import Allocator, Demand, MemoryShortError
from everstep_agent.vault.budget import Limits, Use
from everstep_agent.vault.memory import Region
from everstep_agent.vault.workers import Workers

_PAGE = 4096


class _Plenty:
    def available_bytes(self) -> int:
        return 1 << 62


@dataclass
class _Kept:
    """What ended jobs keep, by user."""

    regions: list[tuple[int, Region]] = field(default_factory=list)

    def evict(self) -> bool:
        if not self.regions:
            return False
        self.regions.pop(0)[1].drop()
        return True

    def evictable(self, uid: int) -> Use:
        sizes = [(owner, region.size_bytes) for owner, region in self.regions]
        return Use(sum(size for _, size in sizes), sum(size for own, size in sizes if own == uid))


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers("test", 2)
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


def test_what_the_kernel_refuses_is_said_and_nothing_stays_counted(workers: Workers) -> None:
    allocator = Allocator(workers, _Plenty(), Limits())
    said = "the kernel has no memory left for 2 x 1.0 MiB of snapshots (File too large)"
    with _files_no_larger_than(1 << 16), pytest.raises(MemoryShortError, match=re.escape(said)):
        asyncio.run(allocator.allocate(Demand(1, 2, 1 << 20, "test")))
    assert allocator.used_bytes == 0


@pytest.mark.parametrize("turns", [1, 100, 5000])
def test_who_is_cancelled_while_pages_come_leaves_nothing_behind(
    workers: Workers, turns: int
) -> None:
    allocator = Allocator(workers, _Plenty(), Limits())

    async def cancelled() -> None:
        work = asyncio.create_task(allocator.allocate(Demand(1, 3, 64 << 20, "test")))
        for _ in range(turns):
            await asyncio.sleep(0)
        work.cancel()
        (result,) = await asyncio.gather(work, return_exceptions=True)
        for region in result if isinstance(result, list) else ():
            region.drop()  # it was faster

    asyncio.run(cancelled())
    assert allocator.used_bytes == 0


def test_kept_memory_goes_only_where_its_going_helps(workers: Workers) -> None:
    limits = Limits(total_bytes=4 * _PAGE, per_user_bytes=2 * _PAGE)
    allocator, kept = Allocator(workers, _Plenty(), limits), _Kept()
    allocator.kept = kept

    async def life() -> None:
        for uid in (1, 2):
            (region,) = await allocator.allocate(Demand(uid, 1, _PAGE, "kept"))
            kept.regions.append((uid, region))
        # More than user 3 may ever have: nobody else's memory is touched for it.
        with pytest.raises(MemoryShortError, match="would fit"):
            await allocator.allocate(Demand(3, 3, _PAGE, "test"))
        assert len(kept.regions) == 2
        given = await allocator.allocate(Demand(3, 2, _PAGE, "test"))
        assert len(kept.regions) == 2
        given += await allocator.allocate(Demand(4, 1, _PAGE, "test"))
        assert [uid for uid, _ in kept.regions] == [2]
        for region in given:
            region.drop()

    asyncio.run(life())
    kept.evict()
    assert allocator.used_bytes == 0
