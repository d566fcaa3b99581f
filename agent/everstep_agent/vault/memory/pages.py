"""Pages of snapshot memory: huge ones where the node allows it, populated piece by piece."""

import ctypes
import errno
import mmap
import os
from enum import Enum

PAGE_BYTES = mmap.PAGESIZE
# Size of a huge page on x86-64, and on ARM with pages of 4 KiB. Elsewhere the kernel declines it.
HUGE_PAGE_BYTES = 2 * 1024 * 1024
# Bytes whose pages a thread takes as one piece of work, in 0.1 s: hashing for other jobs runs in
# between.
PIECE_BYTES = 256 * 1024 * 1024
# linux/mman.h; Python 3.11 has no name for it. Since Linux 5.14.
_MADV_POPULATE_WRITE = 23
# linux/falloc.h: FALLOC_FL_PUNCH_HOLE and FALLOC_FL_KEEP_SIZE, which has to be with it.
_PUNCH_HOLE = 0x02 | 0x01


class HugePages(Enum):
    """Kind of pages that snapshot memory is made of."""

    NONE = "none"
    TRANSPARENT = "transparent"
    EXPLICIT = "explicit"


def create_unpopulated(size_bytes: int, name: str, kind: HugePages) -> tuple[int, int]:
    """Return a new memfd without pages, and its size: whole pages. Raises OSError.

    A pool of explicit huge pages that has no room is no error: then the pages are ordinary ones.
    """
    if kind is HugePages.EXPLICIT:
        try:
            return _from_pool(round_up(size_bytes, HUGE_PAGE_BYTES), name)
        except OSError:
            kind = HugePages.TRANSPARENT
    return _sized(round_up(size_bytes, PAGE_BYTES), name, 0)


def populate(fd: int, start: int, end: int, kind: HugePages) -> None:
    """Make the pages of a part present and zeroed, for a worker thread. Raises OSError.

    Allocating alone (fallocate) leaves the zeroing to whoever touches a page first: the trainer,
    inside a step.
    """
    size = end - start
    with mmap.mmap(fd, size, offset=start) as part:
        anchor = ctypes.c_char.from_buffer(part)
        try:
            failed = _populate_mapped(ctypes.addressof(anchor), size, kind)
        finally:
            del anchor  # or the mapping cannot be closed
    if failed == errno.EINVAL:  # a kernel before 5.14
        os.posix_fallocate(fd, start, size)
    elif failed:
        raise OSError(failed, os.strerror(failed))


def populate_view(part: memoryview, kind: HugePages) -> None:
    """Make the pages of a part of a writable mapping present there; raises OSError like populate.

    Where the kernel cannot, they come as they are written.
    """
    anchor = ctypes.c_char.from_buffer(part)
    try:
        failed = _populate_mapped(ctypes.addressof(anchor), len(part), kind)
    finally:
        del anchor  # or the part cannot be released
    if failed not in (0, errno.EINVAL):
        raise OSError(failed, os.strerror(failed))


def free_pages(fd: int, size_bytes: int) -> None:
    """Give the memory back, also from under a mapping; what nobody can change any more stays."""
    _libc.fallocate(fd, _PUNCH_HOLE, 0, size_bytes)


def round_up(size_bytes: int, unit: int) -> int:
    """Return the size in whole units, at least one."""
    return max(1, -(-size_bytes // unit)) * unit


def pieces(size_bytes: int) -> list[tuple[int, int]]:
    """Return where the parts begin and end that threads may populate side by side."""
    return [
        (start, min(start + PIECE_BYTES, size_bytes)) for start in range(0, size_bytes, PIECE_BYTES)
    ]


def _from_pool(size_bytes: int, name: str) -> tuple[int, int]:
    fd, size = _sized(size_bytes, name, os.MFD_HUGETLB | os.MFD_HUGE_2MB)
    try:
        # Mapping takes the reservation, which then belongs to the memory: it fails here or never.
        mmap.mmap(fd, size).close()
    except OSError:
        os.close(fd)
        raise
    return fd, size


def _sized(size_bytes: int, name: str, flags: int) -> tuple[int, int]:
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
    try:
        os.ftruncate(fd, size_bytes)
    except OSError:
        os.close(fd)
        raise
    return fd, size_bytes


# Python's own mmap.madvise keeps the GIL, and with it the agent's event loop, for all that time.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_libc.madvise.restype = ctypes.c_int


def _populate_mapped(address: int, size: int, kind: HugePages) -> int:
    """Return 0, or the error number."""
    if kind is not HugePages.NONE:
        # Declined where shmem_enabled says never; then the pages are ordinary ones.
        _libc.madvise(address, size, mmap.MADV_HUGEPAGE)
    return ctypes.get_errno() if _libc.madvise(address, size, _MADV_POPULATE_WRITE) else 0
