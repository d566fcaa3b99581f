"""Memory that copies arrive in: new, used before by a replica, or half filled before a cut."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from everstep_agent.vault.memory.allocator import AllocationRequest, Allocator, Requester
from everstep_agent.vault.memory.pages import HUGE_PAGE_BYTES
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyKey
from everstep_agent.vault.transfer.incoming_copy import IncomingCopy

# Regions that wait for the next replica; a rank's replicas take turns in two or three. When a step
# is recoverable those of all ranks wait at once: of eight ranks of each of up to four members.
_SPARES_MAX = 32
# Behind a replica in memory of an earlier one; cleared in a fifth of a millisecond.
_REST_BYTES_MAX = HUGE_PAGE_BYTES


@dataclass(frozen=True, slots=True)
class CopyRef:
    """The copy that is to come."""

    key: CopyKey
    size_bytes: int
    root_hash: bytes


class ReceiveBuffers:
    """One job's. Pages are dear (a fault costs more than the copy), so replicas pass them on.

    Only memory that no other process has ever seen goes from one replica to the next: see Region.
    """

    def __init__(self, allocator: Allocator, asker: Callable[[], Requester], kept_s: float) -> None:
        self._allocator = allocator
        self._asker = asker
        self._kept_s = kept_s
        self._cut: dict[CopyRef, tuple[IncomingCopy, asyncio.TimerHandle]] = {}
        self._spares: list[Region] = []
        # Made while this node waits as a spare: nothing has ever come into it.
        self._blank: list[Region] = []
        # How often all was given back.
        self._released = 0
        self._over = False

    async def stock(self, count: int, size_bytes: int) -> None:
        """Have memory for so many copies of at most this size. Raises MemoryShortError."""
        enough = [region for region in self._blank if region.size_bytes >= size_bytes]
        for region in self._blank:
            if region not in enough[:count]:
                _close(region)
        self._blank = enough[:count]
        missing = count - len(self._blank)
        if missing > 0:
            asker = self._asker()
            named = ("everstep-spare", asker.job)
            demand = AllocationRequest(asker.uid, missing, size_bytes, *named, spare=True)
            await self._map(await self._allocator.allocate(demand))

    async def _map(self, regions: list[Region]) -> None:
        released = self._released
        try:
            for region in regions:
                await self._allocator.map_in(region)
        finally:
            if self._released == released:
                self._blank += regions
            else:
                for region in regions:
                    _close(region)

    def wait_no_more(self) -> None:
        """The node has its place: what was made meanwhile and is not filled soon goes back."""
        for region in self._blank:
            asyncio.get_running_loop().call_later(self._kept_s, self._tire, region)

    async def open(self, expected: CopyRef, name: str) -> IncomingCopy:
        """Return where to receive a copy, with what came before a cut. Raises MemoryShortError."""
        kept = self._cut.pop(expected, None)
        if kept is not None:
            arrival, timer = kept
            timer.cancel()
            return arrival
        region = self._spare(expected.size_bytes)
        used = region is not None
        if region is None:
            asker = self._asker()
            demand = AllocationRequest(asker.uid, 1, expected.size_bytes, name, asker.job)
            region = await self._allocator.unpopulated(demand)
        arrival = IncomingCopy(expected.key, expected.root_hash, expected.size_bytes, region)
        arrival.pages = None if used else self._allocator.pages
        arrival.recycle = self._recycle
        return arrival

    def take(self, arrival: IncomingCopy) -> Region:
        """Return the memory of an arrival that is over; the caller drops it."""
        if arrival.pages is not None:
            arrival.pages = None
            self._allocator.populated(arrival.region)
        arrival.region.recycle = arrival.recycle
        return arrival.region

    def put_by(self, arrival: IncomingCopy) -> None:
        """The connection was cut: keep what came for the next attempt, for a while."""
        if not arrival.received_bytes:
            self.take(arrival).drop()
            return
        expected = CopyRef(arrival.key, arrival.size_bytes, arrival.root_hash)
        timer = asyncio.get_running_loop().call_later(self._kept_s, self._expire, expected)
        self._cut[expected] = (arrival, timer)

    def brought(self, expected: CopyRef) -> int:
        """Return how much of a copy has come before a cut."""
        kept = self._cut.get(expected)
        return kept[0].received_bytes if kept else 0

    @property
    def waiting_bytes(self) -> int:
        """Return how much ``release`` would give back."""
        cut = sum(arrival.region.size_bytes for arrival, _ in self._cut.values())
        return cut + sum(region.size_bytes for region in self._spares + self._blank)

    def prune(self, freed: Callable[[CopyKey], bool]) -> None:
        """Give back cut copies that nobody needs any more."""
        for expected in [expected for expected in self._cut if freed(expected.key)]:
            self._cut[expected][1].cancel()
            self._expire(expected)

    def end(self) -> None:
        """The job is another one: what is still read somewhere is not used again either."""
        self._over = True
        self.release()

    def release(self) -> bool:
        """Give back all that only waits for a use; False when there was nothing."""
        found = self.waiting_bytes > 0
        self._released += 1
        self.prune(lambda _: True)
        waiting, self._spares, self._blank = self._spares + self._blank, [], []
        for region in waiting:
            _close(region)
        return found

    def _expire(self, expected: CopyRef) -> None:
        arrival, _ = self._cut.pop(expected)
        region = self.take(arrival)
        region.recycle = None
        region.drop()

    def _spare(self, size_bytes: int) -> Region | None:
        for region in self._spares:
            # Of the same job and part of the state, as a rule: then the size is nearly the same.
            if 0 <= region.size_bytes - size_bytes <= _REST_BYTES_MAX:
                self._spares.remove(region)
                # What is not received is not from before either: all of it will be handed out.
                rest = region.size_bytes - size_bytes
                region.writable()[size_bytes:] = bytes(rest)
                return region
        fitting = [region for region in self._blank if region.size_bytes >= size_bytes]
        if not fitting:
            return None
        region = min(fitting, key=lambda one: one.size_bytes)
        self._blank.remove(region)
        return region

    def _recycle(self, region: Region) -> bool:
        if self._over or len(self._spares) >= _SPARES_MAX:
            return False
        region.proven = b""
        self._spares.append(region)
        asyncio.get_running_loop().call_later(self._kept_s, self._tire, region)
        return True

    def _tire(self, region: Region) -> None:
        for waiting in (self._spares, self._blank):
            if region in waiting:
                waiting.remove(region)
                _close(region)


def _close(region: Region) -> None:
    region.recycle = None
    region.drop()
