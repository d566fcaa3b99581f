"""A job that tries to harm the agent, or another process, through what it was given."""

import asyncio
import fcntl
import os
import socket
from pathlib import Path

import pytest

from everstep_common.launcher_messages import Start
from everstep_common.rank_messages import Begin, Slot
from integration.vault_world import (
    Client,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
    training,
)


async def _restart(node: Node, control: Client, *sources: Node, step: int) -> None:
    named = tuple(source.source(source, step) for source in sources)
    node.order(start_generation=plan(2, named, step=step))
    assert isinstance(await control.hear(), Start)


@lived
async def test_a_rank_cannot_truncate_its_memory(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        await rank.save(1, b"whole")
        for size in (0, 1 << 20):
            with pytest.raises(PermissionError):
                os.ftruncate(rank.fds[0], size)
        await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 1, False)})


@lived
async def test_what_is_handed_back_cannot_be_written(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        async with trainer(node) as rank:
            await rank.save(1, b"whole")
            await node.outlet.until(lambda: node.outlet.copies())
        await _restart(node, control, node, step=1)
        async with trainer(node, 0, generation=2) as again:
            await again.restore()
            assert fcntl.fcntl(again.fds[0], fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            # Nor by opening it again for writing: the kernel has sealed the bytes.
            reopened = os.open(f"/proc/self/fd/{again.fds[0]}", os.O_RDWR)
            with pytest.raises(PermissionError):
                os.pwrite(reopened, b"x", 0)
            os.close(reopened)


@lived
async def test_a_malformed_frame_ends_only_its_connection(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        for garbage in (b"\xff\xff\xff\xff", b"\0\0\0\2{}", b"\0\0\0\3abc"):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.settimeout(20)
                path = str(node.settings.socket_path)
                await asyncio.to_thread(raw.connect, path)
                raw.sendall(garbage)
                assert await asyncio.to_thread(raw.recv, 1) == b""
        assert isinstance(await rank.ask(Begin(1)), Slot)
