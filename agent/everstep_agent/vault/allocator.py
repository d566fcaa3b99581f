"""Gives out snapshot memory within the budget, and says what would fit when it does not."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from everstep_agent.vault.budget import (
    NOTHING,
    Limits,
    MemoryGauge,
    Room,
    Use,
    refusal,
    room,
    size_text,
)
from everstep_agent.vault.forecast import Forecast, shortage
from everstep_agent.vault.memory import Region, create, duplicate, round_to_pages
from everstep_agent.vault.pages import HugePages, pieces, populate
from everstep_agent.vault.workers import Workers


class MemoryShortError(Exception):
    """The memory that was asked for is not there; the sentence says what would fit."""


@dataclass(frozen=True, slots=True)
class Demand:
    """So much memory, for the job of this user."""

    uid: int
    pieces: int
    piece_bytes: int
    name: str


class Kept(Protocol):
    """Memory of jobs that failed, kept in case somebody comes back: others need it more."""

    def evict(self) -> bool:
        """Free some of it; False when there is none."""
        ...

    def evictable(self, uid: int) -> Use:
        """Return how much there is, of all users and of this one."""
        ...


class NothingKept:
    """A node that keeps nothing beyond its jobs."""

    def evict(self) -> bool:
        """See Kept."""
        return False

    def evictable(self, uid: int) -> Use:
        """See Kept."""
        return NOTHING


class Allocator:
    """All snapshot memory of the node comes from here."""

    def __init__(
        self,
        workers: Workers,
        gauge: MemoryGauge,
        limits: Limits,
        pages: HugePages = HugePages.TRANSPARENT,
    ) -> None:
        self._workers = workers
        self._gauge = gauge
        self._limits = limits
        self.pages = pages
        self._used: Counter[int] = Counter()
        # Given out, and still to be taken from the kernel.
        self._promised_bytes = 0
        self._one_at_a_time = asyncio.Lock()
        # Memory that is kept only in case somebody comes back.
        self.kept: Kept = NothingKept()

    @property
    def used_bytes(self) -> int:
        """Return how much is given out."""
        return self._used.total()

    async def allocate(self, demand: Demand) -> list[Region]:
        """Return pre-faulted memory. Raises MemoryShortError."""
        async with self._one_at_a_time:
            await self._check(demand, round_to_pages(demand.piece_bytes))
            regions: list[Region] = []
            try:
                for _ in range(demand.pieces):
                    region = create(demand.piece_bytes, demand.name, self.pages)
                    regions.append(self.account(demand.uid, region))
                await self._populate(regions)
            except BaseException as error:
                for region in regions:
                    region.drop()
                if isinstance(error, OSError):
                    raise _short(demand.pieces, demand.piece_bytes, error) from error
                raise
        return regions

    async def unpopulated(self, demand: Demand) -> Region:
        """Return memory whose pages come while it is filled. Raises MemoryShortError."""
        async with self._one_at_a_time:
            await self._check(demand, round_to_pages(demand.piece_bytes))
            try:
                region = create(demand.piece_bytes, demand.name, self.pages)
            except OSError as error:
                raise _short(1, demand.piece_bytes, error) from error
            self._promised_bytes += region.size_bytes
        return self.account(demand.uid, region)

    def populated(self, region: Region) -> None:
        """What came of such memory is there, or will never be: nothing of it is owed any more."""
        self._promised_bytes -= region.size_bytes

    async def duplicate(self, uid: int, source: Region, size_bytes: int) -> Region:
        """Return a copy that nobody can change any more. Raises MemoryShortError."""
        async with self._one_at_a_time:
            await self._check(Demand(uid, 1, size_bytes, ""), round_to_pages(size_bytes))
            try:
                copied = await self._workers.run(
                    lambda: duplicate(source, size_bytes, "everstep-copy")
                )
            except OSError as error:
                raise _short(1, size_bytes, error) from error
        return self.account(uid, copied)

    def account(self, uid: int, region: Region) -> Region:
        """Count memory that exists already, until its last user drops it."""
        size = region.size_bytes
        self._used[uid] += size

        def closed() -> None:
            self._used[uid] -= size

        region.on_close = closed
        return region

    async def refusal(self, uid: int, forecast: Forecast) -> str | None:
        """Return why a job would not fit, and what would; frees what is kept if that helps."""
        async with self._one_at_a_time:
            return await self._make_room(uid, partial(shortage, forecast))

    async def _populate(self, regions: list[Region]) -> None:
        """Fill in all pages, as many pieces side by side as there are threads."""
        work = [
            partial(populate, region.fd, start, end, self.pages)
            for region in regions
            for start, end in pieces(region.size_bytes)
        ]
        # Returned, not raised: nothing may be closed under a thread that is still at it.
        done = await asyncio.gather(*map(self._workers.run, work), return_exceptions=True)
        for result in done:
            if result is not None:
                raise result

    async def _room(self, uid: int, freed: Use = NOTHING) -> Room:
        """Return what is left for a user, or would be with so much freed."""
        available = await self._workers.run(self._gauge.available_bytes) + freed.total_bytes
        available -= self._promised_bytes
        total, own = self.used_bytes - freed.total_bytes, self._used[uid] - freed.user_bytes
        return room(available, self._limits, Use(total, own))

    async def _check(self, demand: Demand, size: int) -> None:
        problem = await self._make_room(demand.uid, partial(refusal, demand.pieces, size))
        if problem:
            raise MemoryShortError(problem)

    async def _make_room(self, uid: int, problem: Callable[[Room], str | None]) -> str | None:
        """Return what is still wrong. Kept memory goes only where its going helps."""
        while said := problem(await self._room(uid)):
            freed = await self._room(uid, self.kept.evictable(uid))
            if problem(freed) or not self.kept.evict():
                return said
        return None


def _short(count: int, size_bytes: int, error: OSError) -> MemoryShortError:
    return MemoryShortError(
        f"the kernel has no memory left for {count} x {size_text(size_bytes)} of snapshots "
        f"({error.strerror}); free memory on this node, or lower jobs.slots_per_rank"
    )
