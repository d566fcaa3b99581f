"""Allocator of snapshot memory: within the limits, or a sentence that says what would fit."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from everstep_agent.concurrency.change_signal import ChangeSignal
from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.vault.memory.capacity import (
    NO_USE,
    Capacity,
    MemoryForecast,
    MemoryLimits,
    MemoryUse,
    NodeCapacity,
    capacity_left,
    capacity_refusal,
    forecast_refusal,
    size_text,
    user_capacity_left,
)
from everstep_agent.vault.memory.gauges import HugePagePool, MemoryGauge
from everstep_agent.vault.memory.page_population import PagePopulator, unpopulated_bytes
from everstep_agent.vault.memory.pages import HugePages, populate_view
from everstep_agent.vault.memory.quota import (
    EvictableMemory,
    MemoryAccounting,
    NothingEvictable,
    NothingPromised,
    Promises,
    describe_shares,
    promised_use,
)
from everstep_agent.vault.memory.region import (
    Region,
    create_region,
    duplicate_region,
    round_to_pages,
)

# Bytes that one call on a thread maps, in a millisecond at most.
_MAPPED_BYTES = 16 * 1024 * 1024


class MemoryShortError(Exception):
    """The memory that was asked for is not there; the sentence says what would fit."""


@dataclass(frozen=True, slots=True)
class Requester:
    """Job, and its user, that asks for memory."""

    uid: int
    job: str = ""
    # Whether memory promised to other jobs, and not taken yet, is withheld from this request.
    after_promises: bool = False


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """So much memory, for the job of this user."""

    uid: int
    pieces: int
    piece_bytes: int
    name: str
    job: str = ""
    # Whether the memory is only good to have: nothing kept or promised is given up for it.
    spare: bool = False
    # As in Requester: memory promised to other jobs is withheld.
    after_promises: bool = False

    @property
    def requester(self) -> Requester:
        """Return who asks for it."""
        return Requester(self.uid, self.job, self.after_promises or self.spare)


def _all_of(left: Capacity) -> Capacity:
    return left


class Allocator:
    """All snapshot memory of the node comes from here."""

    def __init__(
        self,
        threads: ThreadPool,
        gauge: MemoryGauge,
        limits: MemoryLimits,
        pages: HugePages = HugePages.TRANSPARENT,
        pool: MemoryGauge | None = None,
    ) -> None:
        self._threads = threads
        self._gauge = gauge
        self._limits = limits
        self.pages = pages
        self._pool = pool or HugePagePool()
        self._accounting = MemoryAccounting()
        # Bytes that were given out and whose pages are still to be taken from the kernel.
        self._unfilled_bytes = 0
        # Takes the pages of memory that was given out; several at once, while only the decisions
        # about memory are made one after the other.
        self._populator = PagePopulator(threads, pages)
        self._one_at_a_time = asyncio.Lock()
        # How much memory that was given up is not free yet.
        self._freeing = 0
        self._freed = ChangeSignal()
        # Memory that is kept only in case somebody comes back, and what joining jobs were promised.
        self.evictable: EvictableMemory = NothingEvictable()
        self.promises: Promises = NothingPromised()

    @property
    def used_bytes(self) -> int:
        """Return how much is given out."""
        return self._accounting.used_bytes

    async def until_freed(self) -> None:
        """Return when all memory that was given up has gone back to the kernel."""
        while self._freeing:
            await self._freed.wait()

    async def allocate(self, request: AllocationRequest) -> list[Region]:
        """Return pre-faulted memory. Raises MemoryShortError."""
        async with self._one_at_a_time:
            regions = await self._create_regions(request)
            self._populator.expect(sum(map(unpopulated_bytes, regions)))
        try:
            await self._populator.populate(regions)
        except BaseException as error:
            _drop(regions)
            if isinstance(error, OSError):
                raise _short(request.pieces, request.piece_bytes, error) from error
            raise
        return regions

    async def map_region(self, region: Region) -> None:
        """Map memory that is to be filled here: a page that is there costs a fault, too, if small.

        Raises OSError.
        """
        view = region.writable()
        for start in range(0, region.size_bytes, _MAPPED_BYTES):
            with view[start : start + _MAPPED_BYTES] as part:
                await self._threads.run(partial(populate_view, part, self.pages))

    async def allocate_unpopulated(self, request: AllocationRequest) -> Region:
        """Return memory whose pages come while it is filled. Raises MemoryShortError."""
        async with self._one_at_a_time:
            (region,) = await self._create_regions(request)
            self._unfilled_bytes += unpopulated_bytes(region)
        return region

    def mark_populated(self, region: Region) -> None:
        """All pages of such memory that are needed are there: the kernel gives no more for it."""
        self._unfilled_bytes -= unpopulated_bytes(region)

    async def duplicate(self, requester: Requester, source: Region, size_bytes: int) -> Region:
        """Return a copy that nobody can change any more. Raises MemoryShortError."""
        async with self._one_at_a_time:
            size = round_to_pages(size_bytes)
            await self._check(
                AllocationRequest(requester.uid, 1, size, "", requester.job), Capacity.without_pool
            )
            # Counted as the user's from now on, although its pages are taken only after this.
            self._accounting.add(requester.uid, requester.job, size)
            self._populator.expect(size)
        try:
            copied = await self._threads.run(
                lambda: duplicate_region(source, size_bytes, "everstep-copy")
            )
        except OSError as error:
            raise _short(1, size_bytes, error) from error
        finally:
            self._accounting.add(requester.uid, requester.job, -size)
            self._populator.finish(size)
        return self.account_region(requester, copied)

    def account_region(self, requester: Requester, region: Region) -> Region:
        """Count memory that exists already, until its last user releases it."""
        add = partial(self._accounting.add, requester.uid, requester.job)
        add(region.size_bytes)
        region.on_close = partial(add, -region.size_bytes)
        region.disposer = self._dispose
        return region

    def _dispose(self, free: Callable[[], None], closed: Callable[[], None]) -> bool:
        """Free memory in a thread: on the event loop all jobs of the node would wait for it."""

        def done() -> None:
            closed()
            self._freeing -= 1
            self._freed.notify()

        self._freeing += 1
        if self._threads.start(free, done):
            return True
        self._freeing -= 1
        return False

    async def forecast_refusal(self, requester: Requester, forecast: MemoryForecast) -> str | None:
        """Return why a job would not fit, and what would; frees what is kept if that helps."""
        async with self._one_at_a_time:
            return await self._evict_until_fits(requester, partial(forecast_refusal, forecast))

    async def fits(self, request: AllocationRequest, freed: Iterable[Region] = ()) -> bool:
        """Return whether there is room as things are, or with this of the user's given back."""
        sizes = [(region.size_bytes, unpopulated_bytes(region)) for region in freed]
        total, ordinary = (sum(column) for column in zip((0, 0), *sizes, strict=True))
        left = await self._capacity(request.requester, MemoryUse(total, total), total - ordinary)
        return left.fits(request.pieces, round_to_pages(request.piece_bytes))

    async def _create_regions(self, request: AllocationRequest) -> list[Region]:
        """Return new memory, counted, whose pages are still to come. Raises MemoryShortError."""
        await self._check(request)
        regions: list[Region] = []
        try:
            for _ in range(request.pieces):
                regions.append(create_region(request.piece_bytes, request.name, self.pages))
            await self._check_rest(request, sum(not region.pooled for region in regions))
        except BaseException as error:
            _drop(regions)
            if isinstance(error, OSError):
                raise _short(request.pieces, request.piece_bytes, error) from error
            raise
        return [self.account_region(request.requester, region) for region in regions]

    async def _check_rest(self, request: AllocationRequest, ordinary: int) -> None:
        """Ask of ordinary memory what the pool of huge pages did not give, whatever it had."""
        if ordinary and self.pages is HugePages.EXPLICIT:
            await self._check(replace(request, pieces=ordinary), Capacity.without_pool)

    async def _node_capacity(self) -> NodeCapacity:
        pooled = self.pages is HugePages.EXPLICIT
        return await self._threads.run(
            lambda: NodeCapacity(
                self._gauge.available_bytes(), self._pool.available_bytes() if pooled else 0
            )
        )

    async def _capacity(
        self, requester: Requester, freed: MemoryUse = NO_USE, pooled: int = 0
    ) -> Capacity:
        """Return what is left for who asks, or would be with so much freed, so much to the pool."""
        # Read before the node's free memory: pages taken in between count twice, never not at all.
        unpopulated = self._unfilled_bytes + self._populator.unpopulated_bytes
        others = self._accounting.shares_of_others(requester.job, self.promises.standing())
        theirs = promised_use(others, requester.uid) if requester.after_promises else NO_USE
        promised = promised_use(others, requester.uid)
        found = await self._node_capacity()
        back = freed.total_bytes - pooled - unpopulated
        node = NodeCapacity(found.ordinary_bytes + back, found.pool_bytes + pooled)
        use = self._accounting.use_of(requester.uid).plus(theirs).minus(freed)
        left = capacity_left(
            node.without(theirs.total_bytes), self._limits, use, describe_shares(others)
        )
        to_others = promised.total_bytes - promised.user_bytes
        return user_capacity_left(left, self._limits.per_user_ratio, use, to_others)

    def _spared(self, requester: Requester) -> frozenset[str]:
        """Return whose memory helps nobody: what a job has ready of its promise is due again."""
        if not requester.after_promises:
            return frozenset()
        return frozenset(one.job for one in self.promises.standing() if one.job != requester.job)

    async def _check(
        self, request: AllocationRequest, of: Callable[[Capacity], Capacity] = _all_of
    ) -> None:
        size = round_to_pages(request.piece_bytes)

        def problem(left: Capacity) -> str | None:
            return capacity_refusal(request.pieces, size, of(left))

        # Pages being taken are counted twice: a refusal counts only once none are being taken.
        # And memory that goes back to the kernel is there only once it has gone.
        while said := problem(await self._capacity(request.requester)):
            if self._populator.busy:
                await self._populator.wait_any()
            elif self._freeing:
                await self.until_freed()
            else:
                break
        if said and not request.spare:
            said = await self._evict_until_fits(request.requester, problem)
        if said:
            raise MemoryShortError(said)

    async def _evict_until_fits(
        self, requester: Requester, problem: Callable[[Capacity], str | None]
    ) -> str | None:
        """Return what is still wrong. Kept memory goes only where its going helps."""
        while said := problem(await self._capacity(requester)):
            if self._freeing:
                await self.until_freed()
                continue
            spared = self._spared(requester)
            freed = await self._capacity(requester, self.evictable.evictable(requester.uid, spared))
            if problem(freed) or not self.evictable.evict(spared):
                return said
        return None


def _drop(regions: list[Region]) -> None:
    for region in regions:
        region.release()


def _short(count: int, size_bytes: int, error: OSError) -> MemoryShortError:
    return MemoryShortError(
        f"the kernel has no memory left for {count} x {size_text(size_bytes)} of snapshots "
        f"({error.strerror}); free memory on this node, or lower jobs.slots_per_rank"
    )
