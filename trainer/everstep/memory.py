"""Memory that the agent lends: mapped descriptors, and copies at the speed of memcpy."""

import ctypes
import mmap
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

# ctypes.memmove releases the GIL, so threads share a large copy: 512 MiB into mapped memory went at
# 12.4 GB/s with one and 23 GB/s with two on two cores. Four come near a socket's bandwidth limit.
THREADS_MAX = 4
# Below this a copy takes under 3 ms, and handing it to threads costs more than it gains.
THREADED_BYTES = 32 * 1024 * 1024
_PIECE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Copy:
    """``size_bytes`` from one address to another."""

    to_address: int
    from_address: int
    size_bytes: int


class Mapping:
    """A mapped descriptor. Raises OSError or ValueError when it cannot be mapped whole."""

    def __init__(self, fd: int, size_bytes: int, *, writable: bool) -> None:
        """Map; ``fd`` stays the caller's."""
        if os.fstat(fd).st_size < size_bytes:  # touching what is missing would be a SIGBUS
            raise ValueError(f"the agent's memory is shorter than {size_bytes} bytes")
        # A private mapping of a read-only descriptor: ctypes wants writable memory for an address.
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_COPY
        self._mapped = mmap.mmap(fd, size_bytes, access=access)
        self._memory = (ctypes.c_ubyte * size_bytes).from_buffer(self._mapped)
        self.size_bytes = size_bytes
        self.address = ctypes.addressof(self._memory)

    def close(self) -> None:
        """Unmap."""
        del self._memory
        self._mapped.close()


class Copier:
    """Copies memory, large amounts with several threads."""

    def __init__(self, threads: int) -> None:
        self._threads = max(1, min(threads, THREADS_MAX))
        self._pool: ThreadPoolExecutor | None = None

    def copy(self, copies: Sequence[Copy]) -> None:
        """Return when every byte is copied."""
        if self._threads == 1 or sum(copy.size_bytes for copy in copies) < THREADED_BYTES:
            for copy in copies:
                _move(copy)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="everstep-copy")
        for _ in self._pool.map(_move, _pieces(copies)):
            pass

    @classmethod
    def for_node(cls, processes: int) -> "Copier":
        """Return a copier that takes its share of the processors, with this many on the node."""
        return cls(len(os.sched_getaffinity(0)) // max(1, processes))


def _move(copy: Copy) -> None:
    ctypes.memmove(copy.to_address, copy.from_address, copy.size_bytes)


def _pieces(copies: Sequence[Copy]) -> list[Copy]:
    return [
        Copy(
            copy.to_address + at,
            copy.from_address + at,
            min(_PIECE_BYTES, copy.size_bytes - at),
        )
        for copy in copies
        for at in range(0, copy.size_bytes, _PIECE_BYTES)
    ]
