"""Digests: hashes that the training process takes of its memory before the copy, to verify it.

What lies on a device has no digest of the trainer's: its bytes can first be read after the copy
that the digest would have to cover.
"""

import ctypes
from collections.abc import Callable, Sequence

from everstep.copy_engine.memory import Copier, Work
from everstep.copy_engine.views import ShardView

Memory = ctypes.Array[ctypes.c_ubyte]
# xxh3-128 of one shard.
Digest = Callable[[Memory], bytes]


class DigestError(ImportError):
    """The hash library is not installed; the sentence says how to."""


def xxh3_128() -> Digest:
    """Return the hash function. Raises DigestError."""
    try:
        import xxhash
    except ImportError as error:
        raise DigestError(
            'hash="trainer" needs xxhash in the job\'s environment: pip install xxhash'
        ) from error

    def digest(memory: Memory) -> bytes:
        return xxhash.xxh3_128_digest(memory)

    return digest


def digests(shards: Sequence[ShardView], digest: Digest, copier: Copier) -> tuple[bytes, ...]:
    """Return each shard's digest; b"" for one on a device."""
    found = [b""] * len(shards)

    def take(index: int, shard: ShardView) -> Callable[[], None]:
        def call() -> None:
            memory = (ctypes.c_ubyte * shard.size_bytes).from_address(shard.address)
            found[index] = digest(memory)

        return call

    calls = [
        take(index, shard)
        for index, shard in enumerate(shards)
        if shard.cuda is None and shard.size_bytes
    ]
    copier.share(Work(calls))
    return tuple(found)
