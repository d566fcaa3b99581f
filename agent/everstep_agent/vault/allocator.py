"""Gives out snapshot memory within the budget, and says what would fit when it does not."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from everstep_agent.vault.budget import Limits, MemoryGauge, Use, refusal
from everstep_agent.vault.memory import Region, allocate, duplicate, round_to_pages
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


class Allocator:
    """All snapshot memory of the node comes from here."""

    def __init__(self, workers: Workers, gauge: MemoryGauge, limits: Limits) -> None:
        self._workers = workers
        self._gauge = gauge
        self._limits = limits
        self._used: Counter[int] = Counter()
        self._one_at_a_time = asyncio.Lock()
        # Frees memory that is kept only in case somebody comes back; False when there is none.
        self.evict: Callable[[], bool] = lambda: False

    @property
    def used_bytes(self) -> int:
        """Return how much is given out."""
        return self._used.total()

    async def allocate(self, demand: Demand) -> list[Region]:
        """Return pre-faulted memory. Raises MemoryShortError."""
        size = round_to_pages(demand.piece_bytes)
        async with self._one_at_a_time:
            await self._check(demand, size)
            regions: list[Region] = []
            try:
                for _ in range(demand.pieces):
                    region = await self._workers.run(lambda: allocate(size, demand.name))
                    regions.append(self.account(demand.uid, region))
            except OSError as error:
                for region in regions:
                    region.drop()
                raise MemoryShortError(f"the kernel has no memory left: {error}") from error
        return regions

    async def duplicate(self, uid: int, source: Region, size_bytes: int) -> Region:
        """Return a copy that nobody can change any more. Raises MemoryShortError."""
        async with self._one_at_a_time:
            await self._check(Demand(uid, 1, size_bytes, ""), round_to_pages(size_bytes))
            try:
                copied = await self._workers.run(
                    lambda: duplicate(source, size_bytes, "everstep-copy")
                )
            except OSError as error:
                raise MemoryShortError(f"the kernel has no memory left: {error}") from error
        return self.account(uid, copied)

    def account(self, uid: int, region: Region) -> Region:
        """Count memory that exists already, until its last user drops it."""
        size = region.size_bytes
        self._used[uid] += size

        def closed() -> None:
            self._used[uid] -= size

        region.on_close = closed
        return region

    async def _check(self, demand: Demand, size: int) -> None:
        while True:
            available = await self._workers.run(self._gauge.available_bytes)
            use = Use(self.used_bytes, self._used[demand.uid])
            wanted = demand.pieces * size
            problem = refusal(wanted, demand.pieces, available, self._limits, use)
            if problem is None:
                return
            if not self.evict():
                raise MemoryShortError(problem)
