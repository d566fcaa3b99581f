"""Waiting for a descriptor: also of a process with more than a thousand."""

import select
from typing import IO


def becomes_readable(file: int | IO[str] | IO[bytes], within_s: float) -> bool:
    """Return whether there is something to read, or the end, within so many seconds."""
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(within_s * 1000))
