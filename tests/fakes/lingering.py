"""Lingering sockets: TCP sockets whose last close waits for an hour, passed over Unix sockets."""

import array
import socket
import struct
from contextlib import ExitStack, suppress

_LINGER_S = 3600


class LingeringSockets:
    """Maker of such sockets; with its end their peers are gone, and no close waits any more."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._listener = self._stack.enter_context(socket.socket())
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(512)

    def __enter__(self) -> "LingeringSockets":
        """Make them."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let all closes end."""
        self._stack.close()

    def make(self) -> socket.socket:
        """Return one with bytes that its peer never reads."""
        made = socket.socket()
        made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, _LINGER_S))
        made.connect(self._listener.getsockname())
        peer = self._stack.enter_context(self._listener.accept()[0])
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                made.send(b"x" * 65536)
        return made

    def pass_over(self, connection: socket.socket, data: bytes, flags: int = 0) -> None:
        """Send bytes with the only descriptor of one. Raises PermissionError where it is refused.

        Whoever receives it must not close it before this returns. Not socket.send_fds: in Python
        3.11 it ignores its flags.
        """
        with self.make() as made:
            fds = array.array("i", [made.fileno()])
            try:
                connection.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)], flags)
            except OSError:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
                raise
