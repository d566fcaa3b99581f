"""A real file system that hangs: a mount of FUSE whose process never answers the kernel."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from everstep_agent.detectors.host.mounts import MountReading
from everstep_agent.probes.machine.network_mounts import NetworkMounts
from everstep_agent.probes.machine.storage import StorageProbe
from fakes.waits import eventually
from real.fuse_mount import fuse_mount
from real.sandbox import denies_fuse

_DEVICE = Path("/dev/fuse")
pytestmark = [
    pytest.mark.real,
    pytest.mark.skipif(
        os.geteuid() != 0 or not _DEVICE.exists(), reason="needs root and the kernel's FUSE"
    ),
    pytest.mark.skipif(bool(denies_fuse()), reason=denies_fuse()),
]


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Mount it; yield where, and the descriptor whose closing ends every wait."""
    mount = tmp_path / "dataset"
    mount.mkdir()
    with fuse_mount(mount) as device:
        yield mount, device


def test_a_mount_that_hangs_in_the_kernel_is_told_and_nothing_else_waits(
    hanging: tuple[Path, int],
) -> None:
    path, device = hanging

    async def scenario() -> None:
        mounts = NetworkMounts(Path("/proc"), 0.5)

        async def look() -> MountReading:
            return {one.mount: one for one in await mounts.read()}[str(path)]

        for _ in range(2):
            told = await look()
            assert told.hang.startswith("no answer for")
            assert (told.server, told.filesystem) == ("filer:/export", "fuse.filer")
            disks = await asyncio.to_thread(StorageProbe(Path("/proc"), Path("/sys")).read)
            assert disks.disks
            assert str(path) in disks.mounts
        # Its process dies: the kernel lets the waiting thread go, and says what is wrong.
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, device)
        os.close(nothing)

        async def error() -> str:
            return (await look()).error

        assert "not connected" in await eventually(error)

    asyncio.run(scenario())
