"""Root hash of a copy: xxh3-128 over the hashes of its chunks."""

from collections.abc import Iterable

import xxhash

from everstep_agent.vault.memory.region import Region

CHUNK_BYTES = 16 * 1024 * 1024


class ChunkHash:
    """Hash of one chunk while it arrives: what has just come is still in the cache."""

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()

    def add(self, part: memoryview) -> None:
        """Add the next bytes of the chunk."""
        self._hash.update(part)

    def digest(self) -> bytes:
        """Return the hash of the chunk."""
        return self._hash.digest()


class RootHash:
    """Hash of a copy that comes in order, chunk by chunk."""

    def __init__(self) -> None:
        self._digests: list[bytes] = []
        self._size_bytes = 0

    def add(self, chunk: memoryview) -> None:
        """Add the next chunk: CHUNK_BYTES of it, the last one shorter."""
        self._digests.append(xxhash.xxh3_128_digest(chunk))
        self._size_bytes += len(chunk)

    def digest(self) -> bytes:
        """Return the root of what has come."""
        return root_of(self._digests, self._size_bytes)


def root_of(chunk_digests: Iterable[bytes], size_bytes: int) -> bytes:
    """Return the root over all chunks; the size is part of it, so a copy cut at a chunk differs."""
    root = xxhash.xxh3_128()
    for digest in chunk_digests:
        root.update(digest)
    root.update(size_bytes.to_bytes(8, "big"))
    return root.digest()


def chunk_digests(view: memoryview, begin: int, end: int) -> list[bytes]:
    """Return the hashes of a copy's chunks from byte ``begin``, the first of one, to ``end``."""
    return [
        xxhash.xxh3_128_digest(view[start : min(start + CHUNK_BYTES, end)])
        for start in range(begin, end, CHUNK_BYTES)
    ]


def hash_bytes(view: memoryview) -> bytes:
    """Return the root hash of a complete copy."""
    return root_of(chunk_digests(view, 0, len(view)), len(view))


def region_digests(region: Region, begin: int, end: int) -> list[bytes]:
    """Return what `chunk_digests` does, of the copy in a region; for a worker thread."""
    return [
        xxhash.xxh3_128_digest(region.read(start, min(start + CHUNK_BYTES, end)))
        for start in range(begin, end, CHUNK_BYTES)
    ]


def hash_region(region: Region, size_bytes: int) -> bytes:
    """Return the root hash of the first bytes of a region; for a worker thread."""
    return root_of(region_digests(region, 0, size_bytes), size_bytes)


def hash_part(region: Region, begin: int, end: int) -> bytes:
    """Return the plain hash of a part of a region; for a worker thread."""
    plain = xxhash.xxh3_128()
    for start in range(begin, end, CHUNK_BYTES):
        plain.update(region.read(start, min(start + CHUNK_BYTES, end)))
    return plain.digest()
