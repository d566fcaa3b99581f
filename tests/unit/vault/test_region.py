"""Real memfds: what the seals stop, and what the hash sees."""

import mmap
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everstep_agent.vault.memory.pages import (
    HUGE_PAGE_BYTES,
    PIECE_BYTES,
    HugePages,
    pieces,
    populate,
)
from everstep_agent.vault.memory.region import (
    Region,
    allocate_region,
    create_region,
    duplicate_region,
)
from everstep_agent.vault.snapshots.hashing import CHUNK_BYTES, RootHash, hash_bytes, hash_region


@pytest.fixture
def region() -> Iterator[Region]:
    made = allocate_region(5000, "test")
    yield made
    made.release()


def test_memory_comes_in_whole_pages_that_are_all_present(region: Region) -> None:
    status = os.fstat(region.fd)
    assert status.st_size == 8192
    assert status.st_blocks * 512 == 8192


@pytest.mark.parametrize("kind", HugePages)
def test_every_kind_of_page_is_there_or_another_is(kind: HugePages) -> None:
    """With an empty pool of huge pages, as here, explicit ones fall back."""
    made = allocate_region(3 * HUGE_PAGE_BYTES + 1, "test", kind)
    status = os.fstat(made.fd)
    assert status.st_size >= 3 * HUGE_PAGE_BYTES + 1
    assert status.st_blocks * 512 >= status.st_size
    with mmap.mmap(made.fd, made.size_bytes) as memory:
        memory[-1] = 7
    assert made.view()[made.size_bytes - 1] == 7
    made.release()


def test_pages_are_populated_and_not_only_allocated() -> None:
    """Or the trainer's first copy into them would zero them first."""
    made = create_region(1 << 20, "test")
    assert os.fstat(made.fd).st_blocks == 0
    populate(made.fd, 0, 1 << 19, HugePages.NONE)
    assert os.fstat(made.fd).st_blocks * 512 == 1 << 19
    made.release()


def test_the_pieces_of_a_region_cover_it() -> None:
    size = 2 * PIECE_BYTES + 4096
    found = pieces(size)
    assert found[0][0] == 0
    assert found[-1][1] == size
    assert [end for _, end in found[:-1]] == [start for start, _ in found[1:]]


def _blocks_seen_meanwhile(size: int) -> set[int]:
    made, seen = create_region(size, "test"), set[int]()
    thread = threading.Thread(target=populate, args=(made.fd, 0, size, HugePages.NONE))
    thread.start()
    while thread.is_alive():
        seen.add(os.fstat(made.fd).st_blocks * 512)
    made.release()
    return seen


def test_populating_leaves_the_interpreter_to_the_event_loop() -> None:
    """While the GIL is held, nobody can see memory that is half there."""
    size = PIECE_BYTES
    assert any(_blocks_seen_meanwhile(size) - {0, size} for _ in range(20))


_IN_A_FULL_TMPFS = """
import os, sys
sys.path[:0] = sys.argv[2:]
from everstep_agent.vault.memory.region import allocate_region
try:
    with open("/dev/shm/filler", "wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
except OSError as error:
    print(error.strerror, os.statvfs("/dev/shm").f_bavail)
region = allocate_region(8 << 20, "test")
os.pwrite(region.fd, b"whole", 0)
print(bytes(region.view()[:5]).decode(), os.fstat(region.fd).st_blocks * 512)
"""


def test_a_full_dev_shm_is_nothing_to_snapshot_memory() -> None:
    if subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        pytest.skip("no namespaces for a /dev/shm of its own")
    mounted = 'mount -t tmpfs -o size=64k none /dev/shm && exec "$0" -c "$@"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", mounted, sys.executable, _IN_A_FULL_TMPFS, "-", *sys.path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["No space left on device 0", f"whole {8 << 20}"]


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
    copied = duplicate_region(region, 6, "copy")
    os.pwrite(region.fd, b"after!", 0)
    assert bytes(copied.view()[:6]) == b"before"
    assert copied.is_frozen()
    copied.release()


def test_memory_is_closed_by_its_last_user() -> None:
    region = allocate_region(1, "test")
    closed: list[bool] = []
    region.on_close = lambda: closed.append(True)
    region.retain()
    region.release()
    assert not closed
    region.release()
    assert closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(region.fd)


def test_much_memory_is_freed_by_whoever_does_that_and_told_after_it() -> None:
    region = allocate_region(16 * 1024 * 1024, "test")
    closed: list[bool] = []
    waiting: list[Callable[[], None]] = []

    def take(*works: Callable[[], None]) -> bool:
        waiting.extend(works)
        return True

    region.on_close = lambda: closed.append(True)
    region.disposer = take
    region.release()
    os.fstat(region.fd)
    assert not closed
    for work in waiting:
        work()
    assert closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(region.fd)


def test_memory_is_freed_at_once_where_nobody_else_does_it() -> None:
    region = allocate_region(16 * 1024 * 1024, "test")
    region.disposer = lambda _free, _closed: False
    region.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(region.fd)


def test_a_descriptor_without_seals_is_not_adopted() -> None:
    fd = os.memfd_create("loose", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with pytest.raises(OSError, match="size can change; expected memory that is sealed"):
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
