"""Snapshots in huge pages of the kernel's pool, which the test fills and empties again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.vault.pages import HugePages
from integration.vault_world import lived, running, settings, training

pytestmark = pytest.mark.real
_POOL = Path("/proc/sys/vm/nr_hugepages")
_MIB = 1 << 20
# Three slots of two ranks' worth, and the replicas.
_PAGES = 16


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
