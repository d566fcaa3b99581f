"""Change signal: wakes every task that waits for any change of a job's snapshots on this node."""

import asyncio


class ChangeSignal:
    """Signal that wakes everybody who waits at that moment; what changed they look up."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all who wait now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._event.wait()
