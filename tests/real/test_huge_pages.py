"""Snapshots in huge pages of the kernel's pool, which the test fills and empties again."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.jobs.job.context import Environment
from everstep_agent.vault.memory.gauges import HugePagePool
from everstep_agent.vault.memory.pages import HugePages
from everstep_common.rank_messages import Refused, Reserve
from everstep_proto.generated import fleet_pb2
from integration.vault_world import Kept, Node, lived, running, settings, training

# The pool is the machine's.
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("huge pages")]
_POOL = Path("/proc/sys/vm/nr_hugepages")
_MIB = 1 << 20
# Three slots of two ranks' worth, and the replicas.
_PAGES = 16
# The process of an agent: a hole, and a pool that has no page left to fill it with.
_HOLE = """
import ctypes, mmap, sys
from everstep_agent.vault.snapshots.hashing import hash_bytes, hash_region
from everstep_agent.vault.memory.region import allocate_region, duplicate_region
from everstep_agent.vault.memory.pages import HUGE_PAGE_BYTES, HugePages, free_pages

region = allocate_region(2 * HUGE_PAGE_BYTES, "job", HugePages.EXPLICIT)
assert region.pooled, "no page of the pool"
view = region.view()
with mmap.mmap(region.lend_writable(), region.size_bytes) as memory:
    memory[:] = b"x" * region.size_bytes
    free_pages(region.fd, HUGE_PAGE_BYTES)
rest = []
while (taken := allocate_region(HUGE_PAGE_BYTES, "others", HugePages.EXPLICIT)).pooled:
    rest.append(taken)
expected = bytes(HUGE_PAGE_BYTES) + b"x" * HUGE_PAGE_BYTES
if sys.argv[1] == "read":
    assert hash_region(region, region.size_bytes) == hash_bytes(memoryview(expected))
    copy = duplicate_region(region, region.size_bytes, "copy")
    assert hash_region(copy, region.size_bytes) == hash_bytes(memoryview(expected))
else:
    print(view[0])
"""


@pytest.fixture
def pool() -> Iterator[None]:
    """Huge pages of 2 MiB, as long as the test takes."""
    before = _POOL.read_text()
    try:
        _POOL.write_text(str(int(before) + _PAGES))
    except OSError as error:
        pytest.skip(f"the sandbox denies huge pages: {error.strerror}")
    try:
        if int(_POOL.read_text()) < int(before) + _PAGES:
            pytest.skip("the sandbox denies huge pages: the pool stays empty")
        yield
    finally:
        _POOL.write_text(before)


@pytest.mark.usefixtures("pool")
@lived
async def test_snapshots_in_explicit_huge_pages_are_replicated(tmp_path: Path) -> None:
    chosen = {"huge_pages": HugePages.EXPLICIT}
    async with (
        running(settings(tmp_path / "a", **chosen), "node-1") as first,
        running(settings(tmp_path / "b", **chosen), "node-2") as second,
        training(first) as rank,
    ):
        assert len(rank.maps[0]) == 2 * _MIB
        second.direct(1)
        first.direct(1, target=second)
        await rank.save(1, b"huge")
        await second.outlet.until(lambda: second.outlet.copies() == {(1, 0, 1, True)})
        await _give_all_back(first)
        await _give_all_back(second)


async def _give_all_back(node: Node) -> None:
    """The next test needs the pool, and this process goes on."""
    node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))
    await node.until_memory_is(0)


class _Bytes:
    """So much memory to spare, whatever was taken."""

    def __init__(self, available: int) -> None:
        self.available = available

    def available_bytes(self) -> int:
        return self.available


@pytest.mark.usefixtures("pool")
@lived
async def test_slots_of_the_pool_ask_for_no_ordinary_memory(tmp_path: Path) -> None:
    chosen, pool = settings(tmp_path, huge_pages=HugePages.EXPLICIT), HugePagePool()
    world = Environment(stored_fds={}, keeper=Kept(), gauge=_Bytes(0))
    before = pool.available_bytes()
    async with running(chosen, world=world) as node, training(node) as rank:
        # Three slots: out of the pool once, and counted once.
        assert before - pool.available_bytes() == 6 * _MIB
        assert node.jobs.metrics().vault_memory_bytes == 6 * _MIB
        refused = await rank.ask(Reserve(before))
        assert isinstance(refused, Refused)
        assert "in the pool of huge pages)" in refused.reason
        # All of the pool, but for the three that give way: they are empty.
        await rank.reserve(before // (6 * _MIB) * 2 * _MIB)
        assert pool.available_bytes() < 6 * _MIB
        await _give_all_back(node)


@pytest.mark.usefixtures("pool")
@lived
async def test_slots_that_the_pool_has_no_room_for_are_owed_by_ordinary_memory(
    tmp_path: Path,
) -> None:
    world = Environment(stored_fds={}, keeper=Kept(), gauge=_Bytes(24 * _MIB))
    chosen = settings(tmp_path, huge_pages=HugePages.EXPLICIT)
    async with running(chosen, world=world) as node, training(node) as rank:
        # Of 16 huge pages three are slots; 20 MiB are one more slot of huge pages, and two are not.
        assert isinstance(await rank.ask(Reserve(20 * _MIB)), Refused)
        await rank.reserve(12 * _MIB)
        await _give_all_back(node)


@pytest.mark.usefixtures("pool")
@pytest.mark.parametrize(
    ("how", "ends"), [("read", 0), ("map", -signal.SIGBUS)], ids=["the agent", "a mapping"]
)
def test_a_hole_that_a_job_punches_would_kill_who_maps_it_and_not_the_agent(
    how: str, ends: int
) -> None:
    line = [sys.executable, "-c", _HOLE, how]
    assert subprocess.run(line, timeout=60, check=False).returncode == ends
