"""The end of a child process: it is reaped when it dies, whoever still waits for that."""

import asyncio
import os
import subprocess


class Death:
    """Watches one child from its birth. Event loop only."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Begin. Raises OSError when no descriptor is left for it."""
        self._process = process
        self._came = asyncio.Event()
        self._descriptor = os.pidfd_open(process.pid)
        asyncio.get_running_loop().add_reader(self._descriptor, self._reap)

    async def within(self, seconds: float) -> bool:
        """Return whether it is dead, waiting at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._came.wait()
        except TimeoutError:
            return False
        return True

    def _reap(self) -> None:
        asyncio.get_running_loop().remove_reader(self._descriptor)
        os.close(self._descriptor)
        # At once: a pidfd can be read when the last thread has ended.
        self._process.wait()
        self._came.set()
