"""One gRPC stream over a connection of its own, spoken by hand (RFC 9113).

A client library costs a generator as much as the server under measurement, and two cores have to
do for both. The other end cannot tell: it sees the connection, the stream and the messages of an
agent. No flow control towards here: the windows are as large as they may be.
"""

import socket
import struct
from collections.abc import Iterator

from everstep_proto.local.secret import METADATA_KEY

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING, _GOAWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_ACK = _END_STREAM = 1
_END_HEADERS = 4
_STREAM = 1
_FRAME_MAX = 16_384
_WINDOW = 2**31 - 1
_DEFAULT_WINDOW = 65_535
_INITIAL_WINDOW_SIZE = 4
_PATIENCE_S = 60.0
# Of a message of gRPC: whether it is compressed, and its length.
_PREFIX = 5
# A header of a frame: length (24 bits), type, flags, stream.
_HEAD = struct.Struct(">BHBBI")


class StreamEndedError(Exception):
    """The server ended the stream, or the connection."""


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    size = len(payload)
    return _HEAD.pack(size >> 16, size & 0xFFFF, kind, flags, stream) + payload


def _literal(name: bytes, value: bytes) -> bytes:
    """Return a header that is not indexed (RFC 7541, 6.2.2); its name is coded already."""
    return name + bytes([len(value)]) + value


def _request(path: str, secret: str) -> bytes:
    # 0x83 and 0x86: POST, http. 4 is :path, 1 :authority, 31 content-type (RFC 7541, appendix A).
    return b"\x83\x86" + b"".join(
        (
            _literal(b"\x04", path.encode()),
            _literal(b"\x01", b"localhost"),
            _literal(b"\x0f\x10", b"application/grpc"),
            _literal(b"\x00\x02te", b"trailers"),
            _literal(bytes([0, len(METADATA_KEY)]) + METADATA_KEY.encode(), secret.encode()),
        )
    )


def frames_of(received: bytearray) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield kind, flags, stream and payload of the whole frames, which are taken out."""
    at = 0
    while len(received) >= at + _HEAD.size:
        high, low, kind, flags, stream = _HEAD.unpack_from(received, at)
        end = at + _HEAD.size + (high << 16 | low)
        if len(received) < end:
            break
        yield kind, flags, stream, bytes(received[at + _HEAD.size : end])
        at = end
    del received[:at]


def messages_of(received: bytearray) -> Iterator[bytes]:
    """Yield the whole messages of gRPC in the data of a stream, which are taken out."""
    at = 0
    while len(received) >= at + _PREFIX:
        end = at + _PREFIX + int.from_bytes(received[at + 1 : at + _PREFIX], "big")
        if len(received) < end:
            break
        yield bytes(received[at + _PREFIX : end])
        at = end
    del received[:at]


class Http2Stream:
    """A stream that is open from both ends; ``fileno`` is for a selector."""

    def __init__(self, port: int, path: str, secret: str) -> None:
        """Connect to a port of loopback and open the stream. Raises OSError."""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._input = bytearray()
        self._messages = bytearray()
        self._output = bytearray()
        self._window = {0: _DEFAULT_WINDOW, _STREAM: _DEFAULT_WINDOW}
        self._initial_window = _DEFAULT_WINDOW
        settings = struct.pack(">HI", _INITIAL_WINDOW_SIZE, _WINDOW)
        more = struct.pack(">I", _WINDOW - _DEFAULT_WINDOW)
        self._socket.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, settings)
            + _frame(_WINDOW_UPDATE, 0, 0, more)
            + _frame(_HEADERS, _END_HEADERS, _STREAM, _request(path, secret))
        )

    def fileno(self) -> int:
        """Return the descriptor of the connection."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, message: bytes) -> None:
        """Send a message. Raises OSError."""
        self._output += b"\0" + len(message).to_bytes(4, "big") + message
        self._pump()

    def _pump(self) -> None:
        """Send as much as the server has room for; the rest when it says that it has more."""
        frames = []
        while room := min(len(self._output), _FRAME_MAX, max(0, min(self._window.values()))):
            frames.append(_frame(DATA, 0, _STREAM, bytes(self._output[:room])))
            del self._output[:room]
            for window in self._window:
                self._window[window] -= room
        if frames:
            self._socket.sendall(b"".join(frames))

    def receive(self) -> list[bytes]:
        """Return the messages that have come, after the selector said that something has.

        Raises StreamEndedError, and OSError.
        """
        received = self._socket.recv(1 << 18)
        if not received:
            raise StreamEndedError("the server closed the connection")
        self._input += received
        for kind, flags, stream, payload in frames_of(self._input):
            if kind == _WINDOW_UPDATE:
                self._window[stream] += int.from_bytes(payload, "big")
            else:
                self._take(kind, flags, payload)
        self._pump()
        return list(messages_of(self._messages))

    def _take(self, kind: int, flags: int, payload: bytes) -> None:
        if kind == DATA:
            self._messages += payload
        elif kind == _SETTINGS and not flags & _ACK:
            self._set(payload)
            self._socket.sendall(_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self._socket.sendall(_frame(_PING, _ACK, 0, payload))
        elif kind in (_RST_STREAM, _GOAWAY) or (kind == _HEADERS and flags & _END_STREAM):
            raise StreamEndedError(f"the server ended the stream: {payload[-200:]!r}")

    def _set(self, payload: bytes) -> None:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == _INITIAL_WINDOW_SIZE:
                self._window[_STREAM] += value - self._initial_window
                self._initial_window = value
