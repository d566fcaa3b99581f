"""Wakes those who wait for any change of a job's vault."""

import asyncio


class ChangeSignal:
    """Everybody who waits when it rings goes on; looking again is theirs."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all who wait now."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next ring."""
        await self._event.wait()
