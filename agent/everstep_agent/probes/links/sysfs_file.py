"""Sysfs file: bounded reads through a descriptor that stays open between them."""

import errno
import os

# A file of sysfs holds at most a page; a larger file is not one.
_PAGE_BYTES = 4096
_COUNT_MAX = 2**63 - 1
# The device behind a descriptor is gone; there may be a new one at the same path.
_GONE = frozenset({errno.ENODEV, errno.ENOENT, errno.ESTALE, errno.EBADF})
# Service managers leave 1,024 descriptors to a process, which also has streams and vault memory.
KEPT_MAX = 400


class Descriptors:
    """Budget of descriptors that stay open; past that, files are opened for every read."""

    def __init__(self, most: int = KEPT_MAX) -> None:
        self._left = most

    def reserve(self) -> bool:
        """Return whether one more may be kept."""
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """Return one that was closed."""
        self._left += 1


class SysfsFile:
    """One file. A read costs one system call, where open, read and close cost three times that."""

    def __init__(self, path: str, descriptors: Descriptors | None = None) -> None:
        self.path = path
        self._descriptors = descriptors
        self._descriptor = -1

    def text(self) -> str:
        """Return what it says, without the line's end. Raises OSError, ValueError if too large."""
        data = self._read()
        if len(data) >= _PAGE_BYTES:
            raise ValueError(f"{self.path}: more than a page")
        return data.decode("ascii", "replace").strip()

    def text_or_none(self) -> str | None:
        """Return what it says; None when it cannot be read."""
        try:
            return self.text()
        except (OSError, ValueError):
            return None

    def number(self) -> int:
        """Return a count. Raises OSError, and ValueError for anything but digits."""
        text = self.text()
        # 19 digits: counters are kept in 63 bits, and no real one is beyond.
        if not (text.isascii() and text.isdigit()) or len(text) > 19:
            raise ValueError(f"{self.path}: not a number")
        return min(int(text), _COUNT_MAX)

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
            if self._descriptors is not None:
                self._descriptors.give_back()

    def _read(self) -> bytes:
        if self._descriptor >= 0:
            try:
                return os.pread(self._descriptor, _PAGE_BYTES, 0)
            except OSError as error:
                if error.errno not in _GONE:
                    raise
                self.close()
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        if self._descriptors is not None and self._descriptors.reserve():
            self._descriptor = descriptor
            return os.pread(descriptor, _PAGE_BYTES, 0)
        try:
            return os.pread(descriptor, _PAGE_BYTES, 0)
        finally:
            os.close(descriptor)


def text_of(path: str) -> str | None:
    """Return what a file says that is read once; None when it cannot be read."""
    return SysfsFile(path).text_or_none()


def names_in(folder: str) -> list[str]:
    """Return what is in a folder, in order; nothing when there is no such folder."""
    try:
        return sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
