"""Fresh GPU reading: asks the driver at once what it wants done about a GPU, with a short wait."""

import asyncio
from collections.abc import Awaitable, Callable

from everstep_agent.detectors.gpus.presence import GpusReading
from everstep_agent.inventory.node_view import NodeView

# A healthy driver answers within milliseconds; an Xid has to be a finding within 200 ms.
DEADLINE_S = 0.1


class FreshGpus:
    """Reader of the GPUs out of turn; a look that takes longer is used later."""

    def __init__(
        self,
        look: Callable[[], Awaitable[object]],
        view: NodeView,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self._look = look
        self._view = view
        self._deadline_s = deadline_s
        self._running: asyncio.Task[None] | None = None

    async def read(self) -> GpusReading | None:
        """Return a reading that began after the call; None when none came in time."""
        if self._running is not None and not self._running.done():
            return None
        before = self._view.gpus
        self._running = asyncio.create_task(self._look_once(), name="fresh-gpus")
        done, _ = await asyncio.wait({self._running}, timeout=self._deadline_s)
        if not done:
            return None
        self._running.result()
        return self._view.gpus if self._view.gpus is not before else None

    async def _look_once(self) -> None:
        await self._look()
