"""Questions to torch's worker server: HTTP on a rank's own Unix socket, bounded in time and bytes.

The socket and what it answers are the rank's, so neither is believed: the path must be a socket of
the same user, and whoever listens there must be the rank's own process.
"""

import contextlib
import os
import socket
import stat
import struct
import time
from dataclasses import dataclass
from pathlib import Path

_HEAD_MAX = 16 * 1024
_READ_BYTES = 256 * 1024
_PEER = struct.Struct("iII")


class NoAnswerError(Exception):
    """There is no answer that could be used; one clause that says why."""


class SilentError(NoAnswerError):
    """It listens, and does not answer in time."""


class NoHandlerError(NoAnswerError):
    """It answers, and knows nothing of what it is asked."""


class StrangerError(NoAnswerError):
    """What is in the place of the socket is not the rank's."""


@dataclass(frozen=True, slots=True)
class WorkerServer:
    """The worker server of one process, which is this user's."""

    path: Path
    pid: int

    def ask(self, handler: str, within_s: float, bytes_max: int) -> bytes:
        """Return what a handler answers. Raises NoAnswerError."""
        ends_s = time.monotonic() + within_s
        try:
            with socket.socket(socket.AF_UNIX) as client:
                self._connect(client, ends_s)
                request = f"POST /handler/{handler} HTTP/1.1\r\nHost: rank\r\n"
                client.sendall(f"{request}Connection: close\r\nContent-Length: 0\r\n\r\n".encode())
                return _answer(client, ends_s, bytes_max)
        except (TimeoutError, BlockingIOError) as error:
            raise SilentError(f"no answer to {handler!r} within {within_s:.1f} s") from error
        except OSError as error:
            raise NoAnswerError(f"{handler!r}: {error.strerror or error}") from error

    def _connect(self, client: socket.socket, ends_s: float) -> None:
        client.settimeout(_left(ends_s))
        pid = connect(client, self.path, os.geteuid())
        if pid != self.pid:
            raise StrangerError(f"process {pid} listens on {self.path.name}, not the rank's")


def connect(client: socket.socket, path: Path, uid: int) -> int:
    """Connect to a user's socket; return which process listens. Raises StrangerError, OSError."""
    found = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        there = os.fstat(found)
        if not stat.S_ISSOCK(there.st_mode) or there.st_uid != uid:
            raise StrangerError(f"{path.name} is not a socket of user {uid}")
        # Not by its path, which may lead elsewhere by now.
        client.connect(f"/proc/self/fd/{found}")
    finally:
        os.close(found)
    told = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    pid, listener, _ = _PEER.unpack(told)
    if listener != uid:
        raise StrangerError(f"user {listener} listens on {path.name}, not user {uid}")
    return int(pid)


def _left(ends_s: float) -> float:
    left = ends_s - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _answer(client: socket.socket, ends_s: float, bytes_max: int) -> bytes:
    """Read an answer to its end. Raises NoAnswerError, OSError."""
    received = bytearray()
    head, length = b"", -1
    while length < 0 or len(received) < length:
        client.settimeout(_left(ends_s))
        if not (data := client.recv(_READ_BYTES)):
            break
        received += data
        if not head and b"\r\n\r\n" in received:
            head, _, rest = bytes(received).partition(b"\r\n\r\n")
            received, length = bytearray(rest), _length(head)
        if len(received) > (bytes_max if head else _HEAD_MAX):
            raise NoAnswerError(f"an answer of more than {bytes_max} bytes")
    if not head or len(received) < length:
        raise NoAnswerError("the answer breaks off")
    _check_status(head)
    return bytes(received)


def _check_status(head: bytes) -> None:
    words = head.split(maxsplit=2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
        raise NoAnswerError("the answer is not of HTTP")
    if words[1] == b"404":
        raise NoHandlerError("this torch does not answer that")
    if words[1] != b"200":
        raise NoAnswerError(f"the answer has status {words[1][:20]!r}")


def _length(head: bytes) -> int:
    """Return the length of what follows; -1: it ends with the connection."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            with contextlib.suppress(ValueError):
                return max(-1, int(value[:20]))
    return -1
