"""Vault part: the rate at which one agent thread hashes a snapshot, beside xxh3 in its cache."""

import time
from collections.abc import Callable, Iterator

import xxhash
from harness.table import Row, Series, Target

from everstep_agent.vault.memory.region import allocate_region
from everstep_agent.vault.snapshots.hashing import hash_region

_BYTES = 2 * 1024**3
_CACHED_BYTES = 1024 * 1024


def measure(repeats: int) -> Iterator[Row]:
    """Measure and yield the figures."""
    region = allocate_region(_BYTES, "everstep-bench")
    cached = bytes(_CACHED_BYTES)

    def limit() -> None:
        for _ in range(_BYTES // _CACHED_BYTES):
            xxhash.xxh3_128_digest(cached)

    hash_region(region, _BYTES)  # the first maps it
    limits, ours = [], []
    for _ in range(repeats):
        limits.append(_rate(limit))
        ours.append(_rate(lambda: hash_region(region, _BYTES)))
    region.release()
    bare = Series("xxh3-128 of 1 MiB in the cache, one thread", limits, "GB/s")
    yield bare.figure()
    hashed = Series("root hash of a snapshot of 2 GiB, one thread", ours, "GB/s")
    yield hashed.against(bare)
    yield hashed.figure(Target(10.0, at_least=True))


def _rate(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return _BYTES / 1e9 / (time.perf_counter() - began)
