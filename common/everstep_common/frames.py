"""Frames: length-prefixed JSON messages on the Unix socket between a job's processes and the agent.

A frame is a 4-byte big-endian length and a JSON object ``{"type": "Begin", ...fields}``.
Descriptors travel as SCM_RIGHTS beside the first byte of their frame.
"""

import contextlib
import json
import os
import select
import socket
import struct
from array import array
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from everstep_common.codec import CodecError, from_json
from everstep_common.json_writers import message_writer_of

# A rank with 200,000 shards still fits; a hostile length does not make anybody allocate more.
FRAME_BYTES_MAX = 64 * 1024 * 1024
# The kernel's limit for one message (SCM_MAX_FD).
FDS_MAX = 253

_JSON = json.JSONDecoder()
_LENGTH = struct.Struct(">I")
_TIMEVAL = struct.Struct("@ll")
HEADER_BYTES = _LENGTH.size
_ANCILLARY_BYTES = socket.CMSG_SPACE(FDS_MAX * array("i").itemsize)


class FrameError(ConnectionError):
    """The other side sent what is not a frame or not a known message."""


class MessageError(FrameError):
    """A known message whose fields cannot be worked with: its sender can be told which, and why."""

    def __init__(self, problem: str, fields: Mapping[str, object] = MappingProxyType({})) -> None:
        super().__init__(problem)
        # As they came: one of another version is known by those that all versions have.
        self.fields = fields


def header(size_bytes: int) -> bytes:
    """Return what precedes a frame's body of this size."""
    return _LENGTH.pack(size_bytes)


def encode(message: object) -> bytes:
    """Return the frame of a message. Raises FrameError when it is too large."""
    kind: type = type(message)
    payload = message_writer_of(kind)(message).encode()
    if len(payload) > FRAME_BYTES_MAX:
        raise FrameError(f"{kind.__name__} is too large: {len(payload)} bytes")
    return header(len(payload)) + payload


def body_length(header: bytes) -> int:
    """Return how many bytes follow a frame's header. Raises FrameError when they are too many."""
    (length,) = _LENGTH.unpack(header)
    if length > FRAME_BYTES_MAX:
        raise FrameError(f"a frame of {length} bytes is above the limit of {FRAME_BYTES_MAX}")
    return int(length)


def decode(payload: bytes, known: Mapping[str, type]) -> object:
    """Return the message in a frame's body. Raises FrameError for what is not in ``known``."""
    try:
        body = _JSON.decode(str(payload, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise FrameError("a frame that is not JSON") from error
    if not isinstance(body, dict):
        raise FrameError("a frame that is not an object")
    kind = known.get(str(body.pop("type", None)))
    if kind is None:
        raise FrameError("a frame of unknown type")
    try:
        return from_json(kind, body)
    except CodecError as error:
        raise MessageError(str(error), body) from error


def connect_in_turn(connection: socket.socket, path: str, timeout_s: float) -> None:
    """Connect to a Unix socket; where many connect, wait for one's turn. Raises OSError.

    A socket with a timeout of Python's does not wait: it fails at once while the listener's backlog
    is full, as whoever floods it keeps it.
    """
    connection.setblocking(True)
    # 0 would be no limit.
    limit_us = max(1, int(timeout_s * 1e6))
    limit = _TIMEVAL.pack(limit_us // 1_000_000, limit_us % 1_000_000)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    connection.connect(path)


class Channel:
    """Connection that sends and receives messages and waits for both; for trainers and launchers.

    One thread may receive while another one sends. Descriptors are taken with messages of the types
    ``carriers`` only.
    """

    def __init__(
        self, connection: socket.socket, known: Iterable[type], carriers: tuple[type, ...] = ()
    ) -> None:
        # How long `send` waits for room; the kernel's own timeouts would be of both ways at once.
        self._timeout_s = connection.gettimeout()
        connection.setblocking(False)
        self._socket = connection
        self._carriers = carriers
        self._known = {kind.__name__: kind for kind in known}
        # What has come of the next frame: a receive that timed out in its middle can be repeated.
        self._received = bytearray()
        self._fds: list[int] = []

    @classmethod
    def connect(
        cls, path: str, known: Iterable[type], timeout_s: float, carriers: tuple[type, ...] = ()
    ) -> "Channel":
        """Connect to a Unix socket. Raises OSError."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            connect_in_turn(connection, path, timeout_s)
        except OSError:
            connection.close()
            raise
        connection.settimeout(timeout_s)
        return cls(connection, known, carriers)

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno()

    def hang_up(self) -> None:
        """End the connection both ways, also for a thread that reads; `close` comes later."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, and descriptors that came with a frame that never ended."""
        self._socket.close()
        self._drop_fds()

    def send(self, message: object) -> None:
        """Send a message. Raises OSError (TimeoutError among them)."""
        self.send_to_reader(message, self._timeout_s)

    def send_to_reader(self, message: object, silence_s: float | None) -> int:
        """Send to somebody who takes some of it every ``silence_s`` seconds; return its bytes.

        Raises TimeoutError when nothing was sent, and another OSError for a message cut short.
        """
        frame = memoryview(encode(message))
        sent = 0
        while sent < len(frame):
            try:
                sent += self._socket.send(frame[sent:])
            except BlockingIOError:
                try:
                    self._wait(select.POLLOUT, silence_s)
                except TimeoutError as error:
                    if sent:
                        raise ConnectionError("the other side stopped reading") from error
                    raise
        return sent

    def receive(self, timeout_s: float | None) -> tuple[object, list[int]]:
        """Return the next message and its descriptors, which the caller owns.

        Raises TimeoutError, FrameError, and ConnectionError when the other side is gone.
        """
        self._timeout_s = timeout_s
        self._fill(HEADER_BYTES)
        self._fill(HEADER_BYTES + body_length(bytes(self._received[:HEADER_BYTES])))
        payload = bytes(self._received[HEADER_BYTES:])
        self._received.clear()
        try:
            message = decode(payload, self._known)
            if self._fds and not isinstance(message, self._carriers):
                raise FrameError(
                    f"descriptors came with a {type(message).__name__}, which has none"
                )
        except FrameError:
            self._drop_fds()
            raise
        fds, self._fds = self._fds, []
        return message, fds

    def _drop_fds(self) -> None:
        while self._fds:
            os.close(self._fds.pop())

    def _wait(self, event: int, timeout_s: float | None) -> None:
        if self._socket.fileno() < 0:
            raise ConnectionError("the connection is closed")
        ready = select.poll()
        ready.register(self._socket, event)
        if not ready.poll(None if timeout_s is None else timeout_s * 1000):
            raise TimeoutError("the other side is silent")

    def _fill(self, count: int) -> None:
        while (missing := count - len(self._received)) > 0:
            try:
                # Not socket.recv_fds: in Python 3.11 it ignores its flags, and the descriptors
                # would leak into every program that the training process starts.
                data, ancillary, _, _ = self._socket.recvmsg(
                    min(missing, 1 << 20),
                    _ANCILLARY_BYTES if self._carriers else 0,
                    socket.MSG_CMSG_CLOEXEC,
                )
            except BlockingIOError:  # rarely: the answer to a commit is there at the next step
                self._wait(select.POLLIN, self._timeout_s)
                continue
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    self._fds += array("i", content)
            if not data:
                raise ConnectionError("the agent closed the connection")
            self._received += data
