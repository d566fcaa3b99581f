"""Batches of a relay, which would merge the streams of a rack's agents into one.

There is no such relay: this is only as much of it as its cost to the controller can be measured
with. A batch is one message on the relay's stream; each part has the place of its agent.
"""

import struct
from collections.abc import Iterable, Iterator

_HEAD = struct.Struct(">HI")


def pack(parts: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the batch of some agents' messages, in their order."""
    return b"".join(_HEAD.pack(place, len(message)) + message for place, message in parts)


def unpack(batch: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of a batch, each with the place of its agent."""
    at = 0
    while at < len(batch):
        place, size = _HEAD.unpack_from(batch, at)
        at += _HEAD.size + size
        yield place, batch[at - size : at]
