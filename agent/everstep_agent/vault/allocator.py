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
from everstep_agent.vault.pages import HugePages, populate_view
from everstep_agent.vault.populating import Populating
from everstep_agent.vault.workers import Workers

# At most a millisecond: whoever wants the memory waits no longer for it.
_MAPPED_BYTES = 16 * 1024 * 1024


class MemoryShortError(Exception):
    """The memory that was asked for is not there; the sentence says what would fit."""


@dataclass(frozen=True, slots=True)
class Demand:
    """So much memory, for the job of this user."""

    uid: int
    pieces: int
    piece_bytes: int
    name: str
    # For memory that is only good to have: nothing that is kept goes for it.
    spare: bool = False


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
        # Given out and being made. Only the decisions are taken one after the other.
        self._populating = Populating(workers, pages)
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
            regions = self._created(demand)
            self._populating.promise(sum(region.size_bytes for region in regions))
        try:
            await self._populating.fill(regions)
        except BaseException as error:
            _drop(regions)
            if isinstance(error, OSError):
                raise _short(demand.pieces, demand.piece_bytes, error) from error
            raise
        return regions

    def _created(self, demand: Demand) -> list[Region]:
        regions: list[Region] = []
        try:
            for _ in range(demand.pieces):
                region = create(demand.piece_bytes, demand.name, self.pages)
                regions.append(self.account(demand.uid, region))
        except OSError as error:
            _drop(regions)
            raise _short(demand.pieces, demand.piece_bytes, error) from error
        return regions

    async def map_in(self, region: Region) -> None:
        """Map memory that is to be filled here: a page that is there costs a fault, too, if small.

        Raises OSError.
        """
        view = region.writable()
        for start in range(0, region.size_bytes, _MAPPED_BYTES):
            with view[start : start + _MAPPED_BYTES] as part:
                await self._workers.run(partial(populate_view, part, self.pages))

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
            size = round_to_pages(size_bytes)
            await self._check(Demand(uid, 1, size_bytes, ""), size)
            # Counted as the user's from now on: it is not there before it is whole.
            self._used[uid] += size
            self._populating.promise(size)
        try:
            copied = await self._workers.run(lambda: duplicate(source, size_bytes, "everstep-copy"))
        except OSError as error:
            raise _short(1, size_bytes, error) from error
        finally:
            self._used[uid] -= size
            self._populating.kept(size)
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

    async def fits(self, demand: Demand, *, freed_bytes: int = 0) -> bool:
        """Return whether there is room as things are, or with so much of this user's given back."""
        left = await self._room(demand.uid, Use(freed_bytes, freed_bytes))
        return refusal(demand.pieces, round_to_pages(demand.piece_bytes), left) is None

    async def _room(self, uid: int, freed: Use = NOTHING) -> Room:
        """Return what is left for a user, or would be with so much freed."""
        # Before the look at the node: what is taken meanwhile is then counted twice, never not.
        owed = self._promised_bytes + self._populating.owed_bytes
        available = await self._workers.run(self._gauge.available_bytes) + freed.total_bytes - owed
        total, own = self.used_bytes - freed.total_bytes, self._used[uid] - freed.user_bytes
        return room(available, self._limits, Use(total, own))

    async def _check(self, demand: Demand, size: int) -> None:
        problem = partial(refusal, demand.pieces, size)
        # A piece that is half made is counted twice: the last word is that of a quiet moment.
        while (said := problem(await self._room(demand.uid))) and self._populating.busy:
            await self._populating.wait()
        if said and not demand.spare:
            said = await self._make_room(demand.uid, problem)
        if said:
            raise MemoryShortError(said)

    async def _make_room(self, uid: int, problem: Callable[[Room], str | None]) -> str | None:
        """Return what is still wrong. Kept memory goes only where its going helps."""
        while said := problem(await self._room(uid)):
            freed = await self._room(uid, self.kept.evictable(uid))
            if problem(freed) or not self.kept.evict():
                return said
        return None


def _drop(regions: list[Region]) -> None:
    for region in regions:
        region.drop()


def _short(count: int, size_bytes: int, error: OSError) -> MemoryShortError:
    return MemoryShortError(
        f"the kernel has no memory left for {count} x {size_text(size_bytes)} of snapshots "
        f"({error.strerror}); free memory on this node, or lower jobs.slots_per_rank"
    )
