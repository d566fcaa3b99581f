"""Guarded socket: a Unix socket of a stranger, from which the event loop takes no descriptor.

A descriptor that is passed is closed by whoever takes the byte that it came with, or closes the
socket with that byte unread; a close can stand still (`socket_disposal`). So what comes is looked
at first (MSG_PEEK), and a connection with a descriptor in it is ended in a thread.
"""

import contextlib
import socket

from everstep_agent.ipc.accept_load_limit import wait_readable
from everstep_agent.ipc.socket_disposal import socket_disposal

# include/uapi/asm-generic/socket.h: since Linux 6.16 a sender gets EPERM for its descriptors.
_SO_PASSRIGHTS = 83
# What one call takes where the length of a message is not known yet; nearly all are shorter.
_RECEIVED_BYTES = 8 * 1024
# What is dropped at a close, in parts; 208 KiB are unread at most, unless root has set more.
_DROPPED_BYTES = 64 * 1024
_PARTS_DROPPED_MAX = 16
# One for all: what is in it is never read, and only the event loop writes it.
_DROPPED = memoryview(bytearray(_DROPPED_BYTES))


class DescriptorsPassedError(ConnectionError):
    """Descriptors came on a socket that takes none."""

    def __init__(self) -> None:
        super().__init__("it passed descriptors, and none are taken here")


def refuse_descriptors(sock: socket.socket) -> None:
    """Have the kernel refuse descriptors, where it can; a listener's connections inherit it."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


class GuardedSocket:
    """A non-blocking Unix socket, which it owns, of a user of the node. Event loop only."""

    def __init__(self, sock: socket.socket, user: int) -> None:
        self.socket = sock
        self.user = user
        # Made when something is received: most connections of a flood are closed unheard.
        self._room = memoryview(b"")
        sock.setblocking(False)
        refuse_descriptors(sock)
        # A byte that was sent as urgent is otherwise dropped, with its descriptors, by a call that
        # takes the bytes behind it, and no look at these shows it.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)

    async def receive(self) -> memoryview:
        """Return some of what has come, until the next call; empty at the end.

        Raises DescriptorsPassedError, OSError.
        """
        if not self._room:
            self._room = memoryview(bytearray(_RECEIVED_BYTES))
        return self._room[: await self.receive_into(self._room)]

    async def receive_into(self, room: memoryview) -> int:
        """Return how many bytes came, 0 at the end. Raises DescriptorsPassedError, OSError."""
        while True:
            try:
                return self._take(room)
            except BlockingIOError:
                await wait_readable(self.socket)

    def close(self) -> None:
        """End the connection, in a thread if there are descriptors in it."""
        with contextlib.suppress(OSError):
            # From here on nothing more can come.
            self.socket.shutdown(socket.SHUT_RDWR)
        try:
            is_empty = self._drop_unread()
        except DescriptorsPassedError:
            socket_disposal().refuse(self.socket, self.user)
            return
        except OSError:  # it is closed already, or has ended with an error: nothing is in it
            is_empty = True
        if is_empty:
            self.socket.close()
        else:
            socket_disposal().close(self.socket)

    def _take(self, room: memoryview) -> int:
        """Take what was looked at, and no byte more."""
        count, _, flags, _ = self.socket.recvmsg_into([room], 0, socket.MSG_PEEK)
        if flags & socket.MSG_CTRUNC:
            raise DescriptorsPassedError
        return self.socket.recv_into(room[:count]) if count else 0

    def _drop_unread(self) -> bool:
        """Take what is left; return whether that was all. Raises as `receive` does."""
        return any(not self._take(_DROPPED) for _ in range(_PARTS_DROPPED_MAX))
