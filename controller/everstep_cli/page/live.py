"""Live page: what all browsers are told when it changes; one question a turn for all of them."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable

from everstep_cli.client.admin import AdminError
from everstep_cli.page.source import Source

# So many browsers look at once; one more is told to look by hand.
VIEWERS_MAX = 200
_TURN_S = 2.0


class TooManyViewersError(Exception):
    """As many browsers as may are being told of changes."""


class Live:
    """Tells every browser of each change; one that does not read misses what is old by then."""

    def __init__(self, source: Source, pause: Callable[[float], object] = asyncio.sleep) -> None:
        self._source, self._pause = source, pause
        self._viewers: set[asyncio.Queue[str]] = set()
        self._newest = ""
        self._turning: asyncio.Task[None] | None = None

    async def changes(self) -> AsyncGenerator[str, None]:
        """Yield what is so now, and each change of it, as JSON. Raises TooManyViewersError."""
        if len(self._viewers) >= VIEWERS_MAX:
            raise TooManyViewersError
        told: asyncio.Queue[str] = asyncio.Queue(1)
        self._viewers.add(told)
        try:
            if self._turning is None or self._turning.done():
                self._newest = ""
                self._turning = asyncio.ensure_future(self._turn_while_seen())
            elif self._newest:
                yield self._newest
            while True:
                yield await told.get()
        finally:
            self._viewers.discard(told)

    async def _turn_while_seen(self) -> None:
        while self._viewers:
            found = await self._look()
            if found != self._newest:
                self._newest = found
                for viewer in self._viewers:
                    if viewer.full():
                        viewer.get_nowait()
                    viewer.put_nowait(found)
            await self._pause(_TURN_S)  # type: ignore[misc]

    async def _look(self) -> str:
        try:
            fleet, jobs = await self._source.fleet(), await self._source.jobs()
        except AdminError as error:
            return json.dumps({"away": str(error)})
        shown = [[job.job, job.state, job.step if job.has_step else None] for job in jobs.jobs]
        tiles = [[t.node, t.state, t.letter, t.shape, t.told] for t in fleet.troubled.values()]
        counts = fleet.roster.counts(fleet.troubled)
        told = {"tiles": tiles, "counts": counts, "roster": fleet.roster.mark, "jobs": shown}
        return json.dumps(told)
