"""Real memfds: what the seals stop, and what the hash sees."""

import mmap
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault.hashing import CHUNK_BYTES, RootHash, hash_bytes, hash_region
from everstep_agent.vault.memory import Region, allocate, duplicate


@pytest.fixture
def region() -> Iterator[Region]:
    made = allocate(5000, "test")
    yield made
    made.drop()


def test_memory_comes_in_whole_pages_that_are_all_present(region: Region) -> None:
    status = os.fstat(region.fd)
    assert status.st_size == 8192
    assert status.st_blocks * 512 == 8192


def test_memory_cannot_be_shortened_or_grown(region: Region) -> None:
    for size in (0, 1 << 20):
        with pytest.raises(PermissionError):
            os.ftruncate(region.fd, size)


def test_memory_that_a_process_can_still_write_does_not_freeze(region: Region) -> None:
    region.view()  # the agent's own mapping is not in the way
    with mmap.mmap(region.fd, region.size_bytes):
        assert not region.freeze()
    assert region.freeze()
    assert region.freeze()
    with pytest.raises(PermissionError):
        os.pwrite(region.fd, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(region.fd, region.size_bytes)


def test_a_duplicate_keeps_the_bytes_of_its_moment(region: Region) -> None:
    os.pwrite(region.fd, b"before", 0)
    copied = duplicate(region, 6, "copy")
    os.pwrite(region.fd, b"after!", 0)
    assert bytes(copied.view()[:6]) == b"before"
    assert copied.frozen()
    copied.drop()


def test_memory_is_closed_by_its_last_user() -> None:
    region = allocate(1, "test")
    closed: list[bool] = []
    region.on_close = lambda: closed.append(True)
    region.hold()
    region.drop()
    assert not closed
    region.drop()
    assert closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(region.fd)


def test_a_descriptor_without_seals_is_not_adopted() -> None:
    fd = os.memfd_create("loose", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with pytest.raises(OSError, match="not sealed"):
        Region.adopt(fd)
    os.close(fd)


def test_any_single_flipped_bit_changes_the_hash(region: Region) -> None:
    before = hash_region(region, 5000)
    for at in (0, 2500, 4999):
        os.pwrite(region.fd, b"\x01", at)
        assert hash_region(region, 5000) != before
        os.pwrite(region.fd, b"\x00", at)
    assert hash_region(region, 5000) == before


@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_copy_that_was_cut_has_another_hash(content: bytes, at: int) -> None:
    if at < len(content):
        assert hash_bytes(memoryview(content[:at])) != hash_bytes(memoryview(content))


def test_hashing_on_arrival_equals_hashing_at_rest() -> None:
    content = memoryview(bytes(CHUNK_BYTES + 5))
    root = RootHash()
    root.add(content[:CHUNK_BYTES])
    root.add(content[CHUNK_BYTES:])
    assert root.digest() == hash_bytes(content)
    assert hash_bytes(content[:CHUNK_BYTES]) != root.digest()
