"""Page population: takes the pages of new memory from the kernel, for several requests at once."""

import asyncio
from collections.abc import Sequence
from functools import partial

from everstep_agent.concurrency.change_signal import ChangeSignal
from everstep_agent.concurrency.thread_pool import ThreadPool
from everstep_agent.vault.memory.pages import HugePages, pieces, populate
from everstep_agent.vault.memory.region import Region

# How many pieces of one request wait for a thread at once, as many as there are threads by default:
# other requests queue behind these few, not behind all pieces of a huge one.
_ABREAST = 4


def unpopulated_bytes(region: Region) -> int:
    """Return what the kernel is still to give for new memory: huge pages of the pool are reserved.

    They are out of the pool since they were mapped, and never were ordinary memory.
    """
    return 0 if region.pooled else region.size_bytes


class PagePopulator:
    """Populator of pages; knows to a piece what is granted and not yet taken from the kernel."""

    def __init__(self, threads: ThreadPool, pages: HugePages) -> None:
        self._threads = threads
        self._pages = pages
        self.unpopulated_bytes = 0
        self._requests = 0
        self._done = ChangeSignal()

    @property
    def busy(self) -> bool:
        """Return whether anything is being populated."""
        return self._requests > 0

    async def wait_any(self) -> None:
        """Return when some request has all that it was granted, or has failed."""
        await self._done.wait()

    def expect(self, size_bytes: int) -> None:
        """So much will be taken: who is asked for memory meanwhile counts it as gone."""
        self.unpopulated_bytes += size_bytes
        self._requests += 1

    async def populate(self, regions: Sequence[Region]) -> None:
        """Populate all pages of what was granted. Raises OSError; nothing is due any more then."""
        left = sum(map(unpopulated_bytes, regions))
        parts = [(one, part) for one in regions for part in pieces(one.size_bytes)]
        slots = asyncio.Semaphore(_ABREAST)

        async def one_part(region: Region, start: int, end: int) -> None:
            nonlocal left
            async with slots:
                await self._threads.run(partial(populate, region.fd, start, end, self._pages))
            taken = 0 if region.pooled else end - start
            self.unpopulated_bytes -= taken
            left -= taken

        try:
            works = [one_part(region, start, end) for region, (start, end) in parts]
            # Returned, not raised: nothing may be closed under a thread that is still at it.
            for result in await asyncio.gather(*works, return_exceptions=True):
                if result is not None:
                    raise result
        finally:
            self.finish(left)

    def finish(self, size_bytes: int) -> None:
        """A request is over, and so much of it was not taken."""
        self.unpopulated_bytes -= size_bytes
        self._requests -= 1
        self._done.notify()
