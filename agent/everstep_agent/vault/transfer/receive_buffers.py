"""Receive buffers: memory that copies arrive in, new, recycled or half filled before a cut."""

import asyncio
from collections.abc import Callable

from everstep_agent.vault.memory.allocator import AllocationRequest, Allocator, Requester
from everstep_agent.vault.memory.pages import HUGE_PAGE_BYTES
from everstep_agent.vault.memory.region import Region
from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_agent.vault.transfer.incoming_copy import IncomingCopy

# Regions that wait for the next replica; a rank's replicas take turns in two or three. When a step
# is recoverable those of all ranks wait at once: of eight ranks of each of up to four members.
_RECYCLED_MAX = 32
# The most bytes left behind a replica in memory of an earlier one, cleared in a fifth of a ms.
_REST_BYTES_MAX = HUGE_PAGE_BYTES


class ReceiveBuffers:
    """One job's. Pages are expensive (a fault costs more than the copy), so replicas pass them on.

    Only memory that no other process has ever seen goes from one replica to the next: see Region.
    """

    def __init__(
        self, allocator: Allocator, requester: Callable[[], Requester], kept_s: float
    ) -> None:
        self._allocator = allocator
        self._requester = requester
        self._kept_s = kept_s
        self._partial: dict[CopyRef, tuple[IncomingCopy, asyncio.TimerHandle]] = {}
        self._recycled: list[Region] = []
        # Memory made while this node waits as a spare, never used so far.
        self._spares: list[Region] = []
        # How often all memory was freed.
        self._released = 0
        self._closed = False

    async def prepare_spares(self, count: int, size_bytes: int) -> None:
        """Have memory for so many copies of at most this size. Raises MemoryShortError."""
        enough = [region for region in self._spares if region.size_bytes >= size_bytes]
        for region in self._spares:
            if region not in enough[:count]:
                _close(region)
        self._spares = enough[:count]
        missing = count - len(self._spares)
        if missing > 0:
            requester = self._requester()
            named = ("everstep-spare", requester.job)
            request = AllocationRequest(requester.uid, missing, size_bytes, *named, spare=True)
            await self._map_spares(await self._allocator.allocate(request))

    async def _map_spares(self, regions: list[Region]) -> None:
        released = self._released
        try:
            for region in regions:
                await self._allocator.map_region(region)
        finally:
            if self._released == released:
                self._spares += regions
            else:
                for region in regions:
                    _close(region)

    def expire_spares(self) -> None:
        """The node has its place: what was made meanwhile and is not filled soon goes back."""
        for region in self._spares:
            asyncio.get_running_loop().call_later(self._kept_s, self._expire_idle, region)

    async def open_copy(self, expected: CopyRef, name: str) -> IncomingCopy:
        """Return where to receive a copy, with what came before a cut. Raises MemoryShortError."""
        kept = self._partial.pop(expected, None)
        if kept is not None:
            incoming, timer = kept
            timer.cancel()
            return incoming
        region = self._reuse(expected.size_bytes)
        used = region is not None
        if region is None:
            requester = self._requester()
            request = AllocationRequest(requester.uid, 1, expected.size_bytes, name, requester.job)
            region = await self._allocator.allocate_unpopulated(request)
        incoming = IncomingCopy(expected, region)
        incoming.pages = None if used else self._allocator.pages
        incoming.recycle = self._recycle
        return incoming

    def take_region(self, incoming: IncomingCopy) -> Region:
        """Return the memory of a copy that has come, or failed; the caller releases it."""
        if incoming.pages is not None:
            incoming.pages = None
            self._allocator.mark_populated(incoming.region)
        incoming.region.recycle = incoming.recycle
        return incoming.region

    def keep_partial(self, incoming: IncomingCopy) -> None:
        """The connection was cut: keep what came for the next attempt, for a while."""
        if not incoming.received_bytes:
            self.take_region(incoming).release()
            return
        expected = incoming.copy
        timer = asyncio.get_running_loop().call_later(self._kept_s, self._expire_partial, expected)
        self._partial[expected] = (incoming, timer)

    def received_bytes(self, expected: CopyRef) -> int:
        """Return how much of a copy has come before a cut."""
        kept = self._partial.get(expected)
        return kept[0].received_bytes if kept else 0

    @property
    def idle_bytes(self) -> int:
        """Return how much ``release`` would give back."""
        cut = sum(incoming.region.size_bytes for incoming, _ in self._partial.values())
        return cut + sum(region.size_bytes for region in self._recycled + self._spares)

    def drop_partial(self, freed: Callable[[CopyKey], bool]) -> None:
        """Give back cut copies that nobody needs any more."""
        for expected in [expected for expected in self._partial if freed(expected.key)]:
            self._partial[expected][1].cancel()
            self._expire_partial(expected)

    def close(self) -> None:
        """The job is gone: what is still read somewhere is not used again either."""
        self._closed = True
        self.release_idle()

    def release_idle(self) -> bool:
        """Give back all that only waits for a use; False when there was nothing."""
        found = self.idle_bytes > 0
        self._released += 1
        self.drop_partial(lambda _: True)
        waiting, self._recycled, self._spares = self._recycled + self._spares, [], []
        for region in waiting:
            _close(region)
        return found

    def _expire_partial(self, expected: CopyRef) -> None:
        incoming, _ = self._partial.pop(expected)
        region = self.take_region(incoming)
        region.recycle = None
        region.release()

    def _reuse(self, size_bytes: int) -> Region | None:
        for region in self._recycled:
            # Of the same job and part of the state, as a rule: then the size is nearly the same.
            if 0 <= region.size_bytes - size_bytes <= _REST_BYTES_MAX:
                self._recycled.remove(region)
                # Cleared, because the whole region is handed out, and must hold nothing old.
                rest = region.size_bytes - size_bytes
                region.writable()[size_bytes:] = bytes(rest)
                return region
        fitting = [region for region in self._spares if region.size_bytes >= size_bytes]
        if not fitting:
            return None
        region = min(fitting, key=lambda one: one.size_bytes)
        self._spares.remove(region)
        return region

    def _recycle(self, region: Region) -> bool:
        if self._closed or len(self._recycled) >= _RECYCLED_MAX:
            return False
        region.verified_hash = b""
        self._recycled.append(region)
        asyncio.get_running_loop().call_later(self._kept_s, self._expire_idle, region)
        return True

    def _expire_idle(self, region: Region) -> None:
        for waiting in (self._recycled, self._spares):
            if region in waiting:
                waiting.remove(region)
                _close(region)


def _close(region: Region) -> None:
    region.recycle = None
    region.release()
