"""File change watch: reports by inotify when a file was written, created or replaced."""

import ctypes
import errno
import os
import struct
from pathlib import Path

# <sys/inotify.h>
_MODIFY, _MOVED_TO, _CREATE = 0x02, 0x80, 0x100
_EVENT = struct.Struct("iIII")
_READ_BYTES = 1 << 16


class FileChanges:
    """Watch on the folder of a file: one on the file would end when it is replaced.

    The folder must exist. Raises OSError where it cannot be watched.
    """

    def __init__(self, path: Path) -> None:
        # A link is followed: what is written goes to the folder of the file itself.
        real = path.resolve()
        self._name = os.fsencode(real.name)
        self._fd = -1
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._checked(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            mask = _MODIFY | _MOVED_TO | _CREATE
            folder = os.fsencode(real.parent)
            self._checked(self._libc.inotify_add_watch(self._fd, folder, mask))
        except OSError:
            self.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor that is readable when something happened in the folder."""
        return self._fd

    def consume_changes(self) -> bool:
        """Return whether what happened since the last call was about the file."""
        found: set[bytes] = set()
        while data := self._read():
            found |= _names(data)
        # Without a name: too much happened to say what, or the folder itself is gone.
        return bool(found & {self._name, b""})

    def close(self) -> None:
        """Stop watching."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()

    def _read(self) -> bytes:
        try:
            return os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return b""

    def _checked(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno() or errno.EINVAL
            raise OSError(number, os.strerror(number))
        return result


def _names(data: bytes) -> set[bytes]:
    names, place = set(), 0
    while place + _EVENT.size <= len(data):
        _, _, _, length = _EVENT.unpack_from(data, place)
        place += _EVENT.size
        names.add(data[place : place + length].rstrip(b"\0"))
        place += length
    return names
