"""Host work: fixed work on one core, on all cores, and in memory beyond the caches, timed."""

import hashlib
import os
import threading
import time
from collections.abc import Callable

from everstep_agent.pair_test.work.figure import Figure

# hashlib lets other threads run while it hashes more than 2 KiB.
_HASH_BYTES = 8 << 20
_REPEATS = 5
# More than the last cache of a processor that is common in GPU nodes; a dimension of its own.
_COPY_BYTES = 128 << 20


def measure_host(repeats: int = _REPEATS, factor: float = 1.0) -> list[Figure]:
    """Time the host's own work; ``factor``: how much more than that is done, on purpose."""
    buffer = bytes(int(_HASH_BYTES * factor))
    count = len(os.sched_getaffinity(0))
    one = _time(repeats, lambda: _hash(buffer))
    every = _time(repeats, lambda: _together(count, buffer))
    source, target = bytearray(_COPY_BYTES), bytearray(_COPY_BYTES)
    # The first copy finds pages that are not there yet, and is not counted.
    copy = memoryview(target)
    copy[:] = source
    copied = _time(repeats, lambda: copy.__setitem__(slice(None), source))
    mib = _HASH_BYTES / (1 << 20)
    return [
        Figure("host core", mib, "MiB", one),
        Figure("host cores", mib * count, "MiB", every),
        Figure("host memory", 2 * _COPY_BYTES / 1e9, "GB", copied),
    ]


def _hash(buffer: bytes) -> None:
    hashlib.sha256(buffer).digest()


def _together(count: int, buffer: bytes) -> None:
    threads = [threading.Thread(target=_hash, args=(buffer,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _time(repeats: int, work: Callable[[], object]) -> tuple[float, ...]:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return tuple(seconds)
