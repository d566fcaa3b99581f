"""Accept load limit: how much of the event loop accepting connections may take.

Accepting is the work whose amount strangers set. So it is done in short bursts, and after each it
rests for as long as keeps it within its share. Those that connect meanwhile wait in the kernel's
backlog, in the order in which they came.
"""

import asyncio
import socket

# Of the time of the event loop, while connections come faster than they are accepted.
_SHARE = 0.1
# The work after which it rests: others wait that long for a burst.
_BURST_S = 0.0005


class AcceptLoadLimit:
    """Pace of one listener."""

    def __init__(self, share: float = _SHARE) -> None:
        self._rest_per_work = 1 / share - 1
        self._worked_s = 0.0

    def count_work(self, seconds: float) -> None:
        """So much of the event loop's time went to somebody who is not served."""
        self._worked_s += seconds

    async def rest_if_due(self) -> None:
        """Rest after a burst."""
        if self._worked_s >= _BURST_S:
            rest_s, self._worked_s = self._worked_s * self._rest_per_work, 0.0
            await asyncio.sleep(rest_s)


async def wait_readable(sock: socket.socket) -> None:
    """Return when there is something to read, or somebody to accept."""
    loop, fd = asyncio.get_running_loop(), sock.fileno()
    readable: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, readable)
    try:
        await readable
    finally:
        loop.remove_reader(fd)


def _resolve(readable: "asyncio.Future[None]") -> None:
    if not readable.done():
        readable.set_result(None)
