"""A file system that hangs in the kernel, or is full, under a job's storage: nobody else waits."""

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.worker.messages import (
    ListSteps,
    StepListing,
    StorageLocation,
    WriteCopy,
)
from everstep_agent.storage.worker.rank_files import describe_file, write_copy
from everstep_agent.storage.worker_pool import StorageWorkerPool
from everstep_agent.storage.worker_process import JobUser, StorageError
from everstep_agent.vault.snapshots.hashing import hash_bytes
from everstep_common.rank_messages import Entry
from fakes.waits import eventually
from integration.vault_world import lived
from real.fuse_mount import fuse_mount
from real.sandbox import denied, denies_fuse

_DEVICE = Path("/dev/fuse")
_NO_TMPFS = denied("mount -t tmpfs -o size=1m tmpfs /mnt") if os.geteuid() == 0 else "needs root"
pytestmark = pytest.mark.real
needs_fuse = pytest.mark.skipif(
    os.geteuid() != 0 or not _DEVICE.exists() or bool(denies_fuse()),
    reason=denies_fuse() or "needs root and the kernel's FUSE",
)


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Mount one; yield where, and the descriptor whose closing ends every wait."""
    mount = tmp_path / "shared"
    mount.mkdir()
    with fuse_mount(mount) as device:
        yield mount, device


@needs_fuse
@lived
async def test_a_file_system_that_hangs_costs_processes_and_nothing_else(
    hanging: tuple[Path, int],
) -> None:
    path, device = hanging
    workers = StorageWorkerPool(str(path), JobUser(os.getuid(), os.getgid()), 0.5, 2)
    loop = asyncio.get_running_loop()
    ticks = 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1
        loop.call_later(0.05, tick)

    tick()
    for _ in range(6):
        with pytest.raises(StorageError, match=r"nothing moved|hang in this path"):
            await workers.ask(ListSteps(StorageLocation(str(path), "demo")), StepListing)
    # The loop was never held up, and hung processes do not pile up.
    assert ticks > 20
    assert workers.hung <= 4
    # The server dies: what hangs is let go, and ends.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, device)
    os.close(nothing)
    await eventually(lambda: not workers.hung)
    await workers.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    mount = tmp_path / "small"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


def _write(folder: Path, step: int, size: int) -> None:
    memory = memoryview(bytes([step]) * size)
    wanted = WriteCopy(
        location=StorageLocation(str(folder), "demo"),
        key=StepKey(1, step),
        rank=0,
        world_size=1,
        size_bytes=size,
        root_hash=hash_bytes(memory),
        layout=b"",
        entries=(Entry("w", 0, size, "U8", (size,)),),
    )
    write_copy(FolderBackend(str(folder), "demo"), wanted, memory, lambda count: None)


@pytest.mark.skipif(bool(_NO_TMPFS), reason=_NO_TMPFS)
def test_a_full_disk_leaves_older_steps_whole_and_nothing_of_the_new_one(small: Path) -> None:
    backend = FolderBackend(str(small), "demo")
    _write(small, 1, 600_000)
    before = os.statvfs(small).f_bavail
    with pytest.raises(OSError, match="No space left on device"):
        _write(small, 2, 600_000)
    assert os.statvfs(small).f_bavail >= before - 4  # folders of the step
    assert describe_file(backend, StepKey(1, 1), 0) is not None
    assert describe_file(backend, StepKey(1, 2), 0) is None
    assert list(small.rglob("*.tmp")) == []
    (small / "demo/gen-1/step-1/rank-0.safetensors").unlink()
    _write(small, 2, 600_000)
    assert describe_file(backend, StepKey(1, 2), 0) is not None
