"""Output sink: writes to a descriptor that others share, without ever waiting for its reader."""

import os
import select
import socket
import stat
from typing import Protocol

# Fits wherever poll(2) says that there is room: a pipe then takes PIPE_BUF (4 KiB) at once, and a
# terminal stops taking output with fewer than 256 characters in its buffer (WAKEUP_CHARS).
_CAREFUL_BYTES = 256


class Sink(Protocol):
    """Destination of output that is never waited for."""

    def fileno(self) -> int:
        """Return what to wait on until it can be written."""
        ...

    def writable(self, timeout_s: float) -> bool:
        """Return whether it takes something within so long (or is gone, which a write tells)."""
        ...

    def write(self, data: bytes) -> int:
        """Return how many bytes it took. Raises BlockingIOError, and OSError when it is gone."""
        ...


class FileSink:
    """A file, a pipe or a terminal, by a descriptor of our own where that is possible.

    O_NONBLOCK on the one that was inherited would be seen by all who share it: by the shell.
    """

    def __init__(self, fd: int) -> None:
        self._careful = False
        self._fd = fd
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return  # never waits; and its position is shared, so it must not be opened again
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        try:
            self._fd = os.open(f"/proc/self/fd/{fd}", flags)
        except OSError:  # it is another user's, or its reader is gone
            self._careful = True

    def fileno(self) -> int:
        """See Sink."""
        return self._fd

    def writable(self, timeout_s: float) -> bool:
        """See Sink."""
        return _writable(self._fd, timeout_s)

    def write(self, data: bytes) -> int:
        """See Sink."""
        if not self._careful:
            return os.write(self._fd, data)
        if not self.writable(0.0):
            raise BlockingIOError
        return os.write(self._fd, data[:_CAREFUL_BYTES])


class SocketSink:
    """A socket: the journal of systemd, or a remote shell's."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=os.dup(fd))

    def fileno(self) -> int:
        """See Sink."""
        return self._socket.fileno()

    def writable(self, timeout_s: float) -> bool:
        """See Sink."""
        return _writable(self.fileno(), timeout_s)

    def write(self, data: bytes) -> int:
        """See Sink."""
        return self._socket.send(data, socket.MSG_DONTWAIT)


class NoSink:
    """A descriptor that was closed before the launcher began."""

    def fileno(self) -> int:
        """See Sink."""
        return -1

    def writable(self, timeout_s: float) -> bool:
        """See Sink."""
        return True

    def write(self, data: bytes) -> int:
        """Take everything; nobody is there to read it."""
        return len(data)


def open_sink(fd: int) -> Sink:
    """Return how to write to a descriptor."""
    try:
        mode = os.fstat(fd).st_mode
    except OSError:
        return NoSink()
    return SocketSink(fd) if stat.S_ISSOCK(mode) else FileSink(fd)


def _writable(fd: int, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return bool(poll.poll(timeout_s * 1000))


def is_gone(fd: int) -> bool:
    """Return whether the other end of a descriptor is gone."""
    poll = select.poll()
    poll.register(fd, 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))
