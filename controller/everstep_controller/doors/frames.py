"""Frames between a door and its controller: a kind, the number of a stream, and bytes. Pure."""

import struct
from collections.abc import Iterator
from enum import IntEnum

_HEADER = struct.Struct("<BII")
# More than any message of a stream, and what is told of its agent.
_BODY_MAX = 64 << 20


class FromDoor(IntEnum):
    """What a door says of a stream."""

    # An agent has connected: OpenedStream, encoded.
    OPENED = 1
    # It has said a message.
    MESSAGE = 2
    # It has gone.
    CLOSED = 3


class ToDoor(IntEnum):
    """What a door is told to do with a stream."""

    # Send a message to the agent.
    SEND = 1
    # End it: EndedStream, encoded.
    END = 2
    # Read no more of it for now, and read on.
    HOLD = 3
    GO_ON = 4


class BadFrameError(Exception):
    """What came is no frame."""


def frame(kind: int, stream: int, body: bytes = b"") -> bytes:
    """Return a frame as it is sent."""
    return _HEADER.pack(kind, stream, len(body)) + body


class FrameBuffer:
    """Bytes of one end of a link as they come, in pieces of any size."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def add(self, more: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Take bytes; yield the frames that are whole now. Raises BadFrameError."""
        kept = self._kept
        kept += more
        at, end = 0, len(kept)
        try:
            while end - at >= _HEADER.size:
                kind, stream, size = _HEADER.unpack_from(kept, at)
                if size > _BODY_MAX:
                    raise BadFrameError(f"a frame of {size} bytes")
                after = at + _HEADER.size + size
                if after > end:
                    break
                body = bytes(kept[at + _HEADER.size : after])
                at = after
                yield kind, stream, body
        finally:
            del kept[:at]
