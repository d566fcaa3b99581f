"""Region: sealed, pre-faulted memory (a memfd) that a process may get that is not trusted.

A region begins at a page (4 KiB; 2 MiB with explicit huge pages), wherever it is mapped, so offsets
in it are as aligned as its manifest makes them. A memfd lives in the kernel's own tmpfs, which has
no size: a full /dev/shm, or one of 64 MiB in a container, is nothing to it.
"""

import errno
import fcntl
import mmap
import os
from collections.abc import Callable

from everstep_agent.vault.memory.pages import (
    PAGE_BYTES,
    HugePages,
    create_unpopulated,
    free_pages,
    pieces,
    populate,
    round_up,
)
from everstep_common.sealed_memory import SIZE_SEALS, sealed_memory_problem

_FREEZE_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
# Bytes that are copied at once, which takes a fifth of a millisecond.
_COPIED_BYTES = 1024 * 1024


# So much is freed within 40 ms, also where a kernel is slow at it (0.4 GB/s).
_FREED_AT_ONCE_BYTES = 16 * 1024 * 1024


class Region:
    """One memfd, counted by those who use it; the last ``release`` closes it.

    Memory that a process has seen is never used for a second role: a mapping cannot be revoked, and
    the process may have passed it on to a child that nobody knows. New roles get new memory, and
    the old one goes back to the kernel with its last mapping.
    """

    def __init__(self, fd: int, size_bytes: int) -> None:
        self.fd = fd
        self.size_bytes = size_bytes
        self.on_close: Callable[[], None] | None = None
        # Has the memory freed off the event loop, and what is to be called after that called on it;
        # returns whether it does.
        self.disposer: Callable[[Callable[[], None], Callable[[], None]], bool] | None = None
        self._users = 1
        self._view: memoryview | None = None
        self._writable: tuple[mmap.mmap, memoryview] | None = None
        # Whether it is of explicit huge pages. A job can punch a hole into its memory, and whoever
        # touches that in a mapping is killed while the pool is empty: so such memory is read by
        # system calls, which give zeros.
        self.pooled = os.fstatvfs(fd).f_bsize > PAGE_BYTES
        # Whether a descriptor was given to another process, which may keep a mapping for ever.
        self.lent = False
        # Whether another process may write to it, through a mapping that cannot be revoked.
        self.lent_writable = False
        # The root hash of its contents once it is frozen, so that it is not hashed again.
        self.verified_hash = b""
        # Takes the memory for reuse when nobody uses it and no other process has seen it; returns
        # whether it did.
        self.recycle: Callable[[Region], bool] | None = None

    @classmethod
    def adopt(cls, fd: int) -> "Region":
        """Take over a descriptor of an earlier agent. Raises OSError for what is no region."""
        if problem := sealed_memory_problem(fd):
            raise OSError(f"descriptor {fd}: {problem}")
        return cls(fd, os.fstat(fd).st_size)

    def retain(self) -> "Region":
        """Keep the memory until the matching ``release``."""
        self._users += 1
        return self

    def release(self) -> None:
        """Give up one use."""
        self._users -= 1
        if self._users == 0:
            if self.recycle and not self.lent and not self.is_frozen() and self.recycle(self):
                self._users = 1
                return
            # A thread that still reads a view keeps the mapping; the descriptor is independent.
            self._view = None
            self._dispose()

    def _dispose(self) -> None:
        """Free the memory; much of it elsewhere, for the kernel takes seconds for that."""
        small = self.size_bytes < _FREED_AT_ONCE_BYTES
        if small or self.disposer is None or not self.disposer(self._free, self._tell_closed):
            self._free()
            self._tell_closed()

    def _free(self) -> None:
        if self.lent_writable:
            # First, because this lets other threads run, and unmapping does not.
            free_pages(self.fd, self.size_bytes)
        self._unmap()
        os.close(self.fd)

    def _tell_closed(self) -> None:
        if self.on_close:
            self.on_close()

    def view(self) -> memoryview:
        """Return the bytes, read-only; slow the first time (maps all of it)."""
        if self._view is None:
            fd = self._reopen()
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

    def read(self, start: int, end: int) -> memoryview:
        """Return some of the bytes, whatever the job does to its memory; may be a copy of them.

        Raises OSError. For worker threads; not more at once than a chunk.
        """
        if not self.pooled:
            return self.view()[start:end]
        found, at = memoryview(bytearray(end - start)), 0
        while at < len(found):
            count = os.preadv(self.fd, [found[at:]], start + at)
            if not count:
                raise OSError(errno.ENODATA, "the memory is shorter than it was")
            at += count
        return found

    def writable(self) -> memoryview:
        """Return the bytes, until ``freeze``, to fill memory that no other process has."""
        if self._writable is None:
            mapping = mmap.mmap(self.fd, self.size_bytes)
            self._writable = (mapping, memoryview(mapping))
        return self._writable[1]

    def lend_writable(self) -> int:
        """Return the descriptor for a process that may write; it stays the region's.

        With the last ``release`` the memory goes back to the kernel, whatever that process still
        has mapped. What it writes there then is memory of its own, counted in its own cgroup.
        """
        self.lent = self.lent_writable = True
        return self.fd

    def open_read_only(self) -> int:
        """Return a new read-only descriptor, for another process; the caller owns it."""
        self.lent = True
        return self._reopen()

    def freeze(self) -> bool:
        """Make the bytes immutable for everybody; False while any process can still write them.

        Stronger than knowing that the processes are dead: the kernel refuses while there is any
        writable mapping, in whatever process.
        """
        self._unmap()
        try:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _FREEZE_SEALS)
        except OSError:
            return self.is_frozen()
        return True

    def is_frozen(self) -> bool:
        """Return whether nobody can change the bytes any more."""
        return bool(fcntl.fcntl(self.fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE)

    def _reopen(self) -> int:
        return os.open(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_CLOEXEC)

    def _unmap(self) -> None:
        # Released by hand: an exception that somebody holds would keep the mapping alive.
        if self._writable is not None:
            mapping, view = self._writable
            self._writable = None
            view.release()
            mapping.close()


def round_to_pages(size_bytes: int) -> int:
    """Return the size in whole pages, at least one."""
    return round_up(size_bytes, PAGE_BYTES)


def create_region(size_bytes: int, name: str, kind: HugePages = HugePages.TRANSPARENT) -> Region:
    """Return new sealed memory whose pages are still to be populated. Raises OSError."""
    fd, size = create_unpopulated(size_bytes, name, kind)
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SIZE_SEALS)
    except OSError:
        os.close(fd)
        raise
    return Region(fd, size)


def allocate_region(size_bytes: int, name: str, kind: HugePages = HugePages.TRANSPARENT) -> Region:
    """Return new memory with every page present. Raises OSError when the kernel has not enough."""
    region = create_region(size_bytes, name, kind)
    try:
        for start, end in pieces(region.size_bytes):
            populate(region.fd, start, end, kind)
    except OSError:
        region.release()
        raise
    return region


def duplicate_region(source: Region, size_bytes: int, name: str) -> Region:
    """Return a frozen copy of the first bytes of a region. Raises OSError."""
    region = allocate_region(size_bytes, name)
    try:
        with mmap.mmap(region.fd, region.size_bytes) as target:
            # In small parts: copying keeps the GIL, and the event loop waits for it.
            for start in range(0, size_bytes, _COPIED_BYTES):
                end = min(start + _COPIED_BYTES, size_bytes)
                target[start:end] = source.read(start, end)
        region.freeze()
    except (OSError, ValueError):
        region.release()
        raise
    return region
