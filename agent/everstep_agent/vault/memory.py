"""Memory that can be handed to a process that is not trusted: sealed, pre-faulted memfds."""

import fcntl
import mmap
import os
from collections.abc import Callable

# Nobody can shorten it under a mapping (SIGBUS in every mapper) or let it grow past the budget.
_SIZE_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_FREEZE_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
PAGE_BYTES = mmap.PAGESIZE


class Region:
    """One memfd, counted by those who use it; the last ``drop`` closes it.

    Memory is never used for a second role: a mapping cannot be revoked, and a process may have
    passed it on to a child that nobody knows. New roles get new memory, and the old one goes back
    to the kernel with its last mapping.
    """

    def __init__(self, fd: int, size_bytes: int) -> None:
        self.fd = fd
        self.size_bytes = size_bytes
        self.on_close: Callable[[], None] | None = None
        self._users = 1
        self._view: memoryview | None = None

    @classmethod
    def adopt(cls, fd: int) -> "Region":
        """Take over a descriptor of an earlier agent. Raises OSError for one that can shrink."""
        if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SIZE_SEALS != _SIZE_SEALS:
            raise OSError(f"descriptor {fd} is not sealed against shrinking")
        return cls(fd, os.fstat(fd).st_size)

    def hold(self) -> "Region":
        """Keep the memory until the matching ``drop``."""
        self._users += 1
        return self

    def drop(self) -> None:
        """Give up one use."""
        self._users -= 1
        if self._users == 0:
            # A view that a thread still reads keeps its mapping; mapping and descriptor are apart.
            self._view = None
            os.close(self.fd)
            if self.on_close:
                self.on_close()

    def view(self) -> memoryview:
        """Return the bytes, read-only; slow the first time (maps all of it)."""
        if self._view is None:
            fd = self.open_read_only()
            try:
                # Only a mapping of a read-only descriptor leaves F_SEAL_WRITE possible.
                mapped = mmap.mmap(
                    fd,
                    self.size_bytes,
                    flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
                    prot=mmap.PROT_READ,
                )
            finally:
                os.close(fd)
            self._view = memoryview(mapped)
        return self._view

    def open_read_only(self) -> int:
        """Return a new read-only descriptor, which the caller owns."""
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def freeze(self) -> bool:
        """Make the bytes immutable for everybody; False while any process can still write them.

        Stronger than knowing that the processes are dead: the kernel refuses while there is any
        writable mapping, in whatever process.
        """
        try:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _FREEZE_SEALS)
        except OSError:
            return self.frozen()
        return True

    def frozen(self) -> bool:
        """Return whether nobody can change the bytes any more."""
        return bool(fcntl.fcntl(self.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE)


def round_to_pages(size_bytes: int) -> int:
    """Return the size in whole pages, at least one."""
    return max(1, -(-size_bytes // PAGE_BYTES)) * PAGE_BYTES


def allocate(size_bytes: int, name: str) -> Region:
    """Return new memory with every page present. Raises OSError when the kernel has not enough."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        size = round_to_pages(size_bytes)
        os.posix_fallocate(fd, 0, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SIZE_SEALS)
    except OSError:
        os.close(fd)
        raise
    return Region(fd, size)


def duplicate(source: Region, size_bytes: int, name: str) -> Region:
    """Return a frozen copy of the first bytes of a region. Raises OSError."""
    region = allocate(size_bytes, name)
    try:
        with mmap.mmap(region.fd, region.size_bytes) as target:
            target[:size_bytes] = source.view()[:size_bytes]
        region.freeze()
    except (OSError, ValueError):
        region.drop()
        raise
    return region
