"""The hash that says whether a copy is the copy: xxh3-128 over the hashes of its chunks."""

import xxhash

from everstep_agent.vault.memory import Region

CHUNK_BYTES = 16 * 1024 * 1024


class RootHash:
    """Hashes a copy while it arrives, chunk by chunk."""

    def __init__(self) -> None:
        self._root = xxhash.xxh3_128()
        self._size_bytes = 0

    def add(self, chunk: memoryview) -> None:
        """Add the next chunk: CHUNK_BYTES of it, the last one shorter."""
        self._root.update(xxhash.xxh3_128_digest(chunk))
        self._size_bytes += len(chunk)

    def digest(self) -> bytes:
        """Return the root; the size is part of it, so a copy cut at a chunk differs."""
        root = self._root.copy()
        root.update(self._size_bytes.to_bytes(8, "big"))
        return root.digest()


def hash_bytes(view: memoryview) -> bytes:
    """Return the root hash of a complete copy."""
    root = RootHash()
    for start in range(0, len(view), CHUNK_BYTES):
        root.add(view[start : start + CHUNK_BYTES])
    return root.digest()


def hash_region(region: Region, size_bytes: int) -> bytes:
    """Return the root hash of the first bytes of a region; for a worker thread."""
    return hash_bytes(region.view()[:size_bytes])
