"""Memory mapping of the agent's descriptors: page tables made beforehand, zeros between shards."""

import ctypes
import mmap
import os
from collections.abc import Sequence
from itertools import pairwise

from everstep_common.rank_messages import Entry
from everstep_common.sealed_memory import sealed_memory_problem

# Python's own mmap keeps the GIL while page tables are made, and has no address for what is
# read-only.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

_MAP_FAILED = ctypes.c_void_p(-1).value
# linux/mman.h; Python 3.11 has no names for them. Since Linux 5.14.
_MADV_POPULATE_READ = 22
_MADV_POPULATE_WRITE = 23
# From the end of a shard to the beginning of the next one, in bytes of the slot.
Gap = tuple[int, int]


class Mapping:
    """A mapped descriptor. Raises OSError or ValueError when it cannot be mapped whole."""

    def __init__(self, fd: int, size_bytes: int, *, writable: bool) -> None:
        """Map; ``fd`` stays the caller's."""
        self._mapped = False
        if problem := sealed_memory_problem(fd, size_bytes):  # touching it could be a SIGBUS
            raise ValueError(f"the agent passed {problem}")
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _libc.mmap(None, size_bytes, protection, mmap.MAP_SHARED, fd, 0)
        if address is None or address == _MAP_FAILED:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        self.size_bytes = size_bytes
        self.address: int = address
        self._mapped = True
        self._pid = os.getpid()
        # A data loader's worker that outlives this process would keep the memory from the node.
        _libc.madvise(address, size_bytes, mmap.MADV_DONTFORK)
        if writable:
            self._populate()

    def prepare(self, offset_bytes: int, size_bytes: int) -> None:
        """Make the page tables for reading a part, without the GIL; without it, each fault does."""
        begin = offset_bytes // mmap.PAGESIZE * mmap.PAGESIZE
        _libc.madvise(self.address + begin, offset_bytes + size_bytes - begin, _MADV_POPULATE_READ)

    def close(self) -> None:
        """Unmap; in a forked child something else may lie there."""
        if self._mapped and os.getpid() == self._pid:
            _libc.munmap(self.address, self.size_bytes)
        self._mapped = False

    def __del__(self) -> None:
        """Memory that nobody can reach any more is of no use."""
        self.close()

    def _populate(self) -> None:
        """Make the page tables: 524,288 faults for 2 GiB that the first snapshots need not take."""
        # Both may be declined, by an older kernel or the node's settings: nothing is lost but time.
        _libc.madvise(self.address, self.size_bytes, mmap.MADV_HUGEPAGE)
        _libc.madvise(self.address, self.size_bytes, _MADV_POPULATE_WRITE)


def gaps_between(entries: Sequence[Entry]) -> frozenset[Gap]:
    """Return the gaps of a layout, whose shards are in the order of the slot."""
    pairs = (
        (one.offset_bytes + one.size_bytes, two.offset_bytes) for one, two in pairwise(entries)
    )
    return frozenset(gap for gap in pairs if gap[0] < gap[1])


class Paddings:
    """The gaps of one slot; zero after `clear`, until shards lie elsewhere.

    A copy's hash covers them, so storage has to keep them, and old bytes have no business there.
    Zeros cost nothing.
    """

    def __init__(self) -> None:
        self._entries: Sequence[Entry] | None = None
        self._zeros: frozenset[Gap] = frozenset()

    def clear(self, address: int, entries: Sequence[Entry]) -> None:
        """Zero what lies between shards that are about to be copied to a slot at ``address``."""
        if entries == self._entries:  # as after most steps
            return
        gaps, known = gaps_between(entries), self._zeros
        # Should this be cut short, nothing is known of the slot any more.
        self._entries, self._zeros = None, frozenset()
        for begin, end in gaps - known:
            ctypes.memset(address + begin, 0, end - begin)
        self._entries, self._zeros = entries, gaps
