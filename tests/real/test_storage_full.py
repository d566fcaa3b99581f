"""A disk that is full in the middle of a file, or a full /dev/shm, under a job that trains."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from integration.storage_world import latest, published, stored, storing
from integration.vault_world import Node, lived, running, settings
from real.sandbox import denied

_DENIED = denied("mount -t tmpfs -o size=1m tmpfs /mnt") if os.geteuid() == 0 else "needs root"
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(bool(_DENIED), reason=_DENIED),
]
_ROOT = Path(__file__).resolve().parents[2]
_SIZE = 600_000


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB: room for one step of the tests, and for a half."""
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


def _judged(node: Node) -> Judgement:
    judged = [one for one in node.jobs.judgements(()) if one.key.condition == "StorageFailing"]
    return judged[0]


def _unnamed(folder: Path) -> list[Path]:
    return list(folder.rglob("*.tmp"))


def _whole(node: Node) -> list[int]:
    return [one.step for one in node.outlet.reports["demo"].stored]


def _committed(node: Node, step: int) -> bool:
    return (1, 0, step, False) in node.outlet.copies()


@lived
async def test_a_disk_that_gets_full_in_the_middle_of_a_file_stops_nothing(
    tmp_path: Path, small: Path
) -> None:
    async with running(settings(tmp_path / "a")) as node, storing(node, small) as rank:
        await rank.reserve(_SIZE)
        await rank.save(1, bytes([1]) * _SIZE)
        await node.outlet.until(partial(_committed, node, 1))
        node.direct(1, 1, persist_steps=[1])
        copy = await stored(node, 1)
        node.direct(1, 1, publish=published([copy], 1))
        await node.outlet.until(lambda: _whole(node))
        await rank.save(2, bytes([2]) * _SIZE)
        await node.outlet.until(partial(_committed, node, 2))
        node.direct(1, 2, persist_steps=[2])
        # Training goes on in the slots that are left, for as long as the disk is full.
        for step in range(3, 12):
            await rank.save(step, bytes([step]) * _SIZE)
            await node.outlet.until(partial(_committed, node, step))
            node.direct(1, step, persist_steps=[2])
        await node.outlet.until(lambda: node.jobs.metrics().storage_write_failures_total)
        judged = _judged(node)
        assert isinstance(judged, Faulty)
        assert "No space left on device" in str(judged.finding.evidence)
        assert latest(small) == (1, 1, 1)
        # It is tried again now and then.
        await node.outlet.until(lambda: _unnamed(small) == [])
        (small / "demo/gen-1/step-1/rank-0.safetensors").unlink()
        copy = await stored(node, 2)
        node.direct(1, 11, publish=published([copy], 1))
        await node.outlet.until(lambda: 2 in _whole(node))
        assert latest(small) == (1, 1, 2)
        assert isinstance(_judged(node), Healthy)


def test_a_full_dev_shm_costs_no_snapshot() -> None:
    """Memory for snapshots is not taken from there."""
    full = "mount -t tmpfs -o size=64k tmpfs /dev/shm && ! head -c 1m /dev/zero >/dev/shm/full"
    saved = "tests/integration/test_trainer_real_agent.py"
    run = f'{full} && exec "{sys.executable}" -m pytest -q -p no:cacheprovider {saved}'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", run], cwd=_ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No space left" in done.stderr
    assert "3 passed" in done.stdout
