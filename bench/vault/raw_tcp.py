"""Raw TCP, the limit of moving bytes between nodes: sendfile on one side, recv_into on the other.

Arguments: send or receive, bytes, streams, "new" or "kept" memory, "used" or "left". Kept memory of
the receiver is mapped and present before; new memory is made for each transfer. What is used is
hashed as it comes, and copied by two threads into memory that is there, before it is acknowledged:
the least that a restore can do with it.
The receiver prints its port; the sender's commands are ports; both answer with [seconds, CPU].
"""

import json
import mmap
import os
import socket
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_ubyte, memmove
from functools import partial

import xxhash

# As the vault does: still in the cache when it is hashed.
_USED_BYTES = 512 * 1024


def parts(size_bytes: int, streams: int) -> list[tuple[int, int]]:
    """Return where each stream begins and how many bytes it moves."""
    each = size_bytes // streams
    return [(number * each, each) for number in range(streams)]


class Use:
    """Receiver's use of the bytes, as in a restore."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._target = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE)
        self._hash = xxhash.xxh3_128()

    def came(self, block: memoryview) -> None:
        """Hash a block that is still in the cache."""
        self._hash.update(block)

    def copy(self, memory: mmap.mmap) -> None:
        """Copy all of it."""
        to, source = (addressof(c_ubyte.from_buffer(one)) for one in (self._target, memory))
        half = self._size_bytes // 2
        with ThreadPoolExecutor(2) as pool:
            works = [pool.submit(memmove, to + at, source + at, half) for at in (0, half)]
            for work in works:
                work.result()


def receive(size_bytes: int, streams: int, *, new: bool, used: bool) -> None:
    """Take the bytes again and again until standard input ends."""
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    use = Use(size_bytes) if used else None

    def take(connection: socket.socket, begin: int, count: int) -> None:
        end = begin + count
        with connection, memoryview(memory) as view:
            while begin < end:
                with view[begin : min(begin + _USED_BYTES, end) if use else end] as rest:
                    got = connection.recv_into(rest, len(rest), socket.MSG_WAITALL)
                    if use:
                        use.came(rest[:got])
                begin += got
            if use:
                use.copy(memory)
            connection.sendall(b"!")

    with socket.create_server(("127.0.0.1", 0), backlog=streams) as listener:
        print(json.dumps(listener.getsockname()[1]), flush=True)
        while sys.stdin.readline().strip():
            if new:
                memory.close()
                memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_SHARED)
            found = [(listener.accept()[0], *part) for part in parts(size_bytes, streams)]
            print(json.dumps(_measured([partial(take, *one) for one in found])), flush=True)


def send(size_bytes: int, streams: int) -> None:
    """Send the bytes to each port that is named, until standard input ends."""
    fd = os.memfd_create("raw")
    os.posix_fallocate(fd, 0, size_bytes)
    mmap.mmap(fd, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE).close()

    def give(connection: socket.socket, begin: int, count: int) -> None:
        with connection, open(f"/proc/self/fd/{fd}", "rb", buffering=0) as file:
            connection.sendfile(file, begin, count)
            connection.recv(1)

    print(json.dumps("ready"), flush=True)
    while line := sys.stdin.readline().strip():
        address = ("127.0.0.1", int(line))
        found = [(socket.create_connection(address), *part) for part in parts(size_bytes, streams)]
        print(json.dumps(_measured([partial(give, *one) for one in found])), flush=True)


def _measured(works: list[Callable[[], None]]) -> list[float]:
    began, cpu = time.monotonic(), time.process_time()
    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(work) for work in works]:
            done.result()
    return [time.monotonic() - began, time.process_time() - cpu]


if __name__ == "__main__":
    sizes = (int(sys.argv[2]), int(sys.argv[3]))
    if sys.argv[1] == "send":
        send(*sizes)
    else:
        receive(*sizes, new=sys.argv[4] == "new", used=sys.argv[5] == "used")
