"""Memory of explicit huge pages is only read, never mapped: a hole in it would kill who looks."""

import pytest
import xxhash

from everstep_agent.vault.memory.region import allocate_region, duplicate_region
from everstep_agent.vault.snapshots.hashing import CHUNK_BYTES, hash_bytes, hash_region
from everstep_agent.vault.verification import torn_shard
from everstep_common.rank_messages import Entry


def test_memory_that_is_only_read_has_the_same_hash_and_the_same_copy() -> None:
    """As memory of huge pages is read, also on machines that have none."""
    size = CHUNK_BYTES + 5000
    region = allocate_region(size, "test")
    content = (b"content" * size)[:size]
    region.writable()[:size] = content
    region.pooled = True
    assert hash_region(region, size) == hash_bytes(memoryview(content))
    copy = duplicate_region(region, size, "copy")
    assert copy.view()[:size] == content
    region.release()
    copy.release()


def test_a_shard_in_memory_that_is_only_read_is_found_torn() -> None:
    region = allocate_region(4096, "test")
    region.pooled = True
    good = Entry("w", 0, 4096, digest=xxhash.xxh3_128_digest(bytes(4096)))
    assert torn_shard(region, (good,)) == ""
    region.writable()[4095] = 1
    assert "shard w" in torn_shard(region, (good,))
    region.release()


def test_memory_that_became_shorter_is_an_error_and_no_end_without_end() -> None:
    region = allocate_region(4096, "test")
    region.pooled = True
    with pytest.raises(OSError, match="shorter"):
        region.read(4000, 5000)
    region.release()
