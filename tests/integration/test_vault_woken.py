"""A stopped process of an older generation wakes up while the next one restores and trains."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_common.launcher_messages import Start
from integration.vault_clients import TIMEOUT_S, Client
from integration.vault_killed import environ
from integration.vault_world import Node, launcher, lived, plan, running, settings, trainer

_RANK = Path(__file__).with_name("vault_rank.py")
# Large enough that copying and hashing take tens of milliseconds: the scribbling falls into them.
_SIZE = 48 << 20
_STATE = b"state after 3".ljust(_SIZE, b".")


class _Old:
    """The old process: committed a step, then stopped."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._scribbles = 0
        self._scribbled = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    def stop(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let it go on, and scribble on all its slots without an end."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go on\n")
        self._process.send_signal(signal.SIGCONT)

    async def scribbled_again(self) -> None:
        """Wait until it has gone over all its slots, from the beginning, once more."""
        wanted = self._scribbles + 2
        async with asyncio.timeout(TIMEOUT_S), self._scribbled:
            await self._scribbled.wait_for(lambda: self._scribbles >= wanted)

    async def end(self) -> None:
        self._process.kill()
        await self._process.wait()
        await self._reader

    async def _read(self) -> None:
        assert self._process.stdout is not None
        while await self._process.stdout.readline():
            async with self._scribbled:
                self._scribbles += 1
                self._scribbled.notify_all()


@asynccontextmanager
async def _old(node: Node) -> AsyncIterator[_Old]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(_RANK), str(node.settings.socket_path), "1", "0", "3", str(_SIZE)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=environ(),
    )
    old = _Old(process)
    try:
        yield old
    finally:
        await old.end()


@asynccontextmanager
async def _second_generation(folder: Path) -> AsyncIterator[tuple[Node, _Old]]:
    """A node whose step 3 is here and on a peer, its old process stopped, generation 2 ordered."""
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(running(settings(folder / "a"), "node-1"))
        second = await stack.enter_async_context(running(settings(folder / "b"), "node-2"))
        control = await stack.enter_async_context(launcher(first))
        first.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        second.direct(1)
        first.direct(1, target=second)
        old = await stack.enter_async_context(_old(first))
        await second.outlet.until(lambda: second.outlet.copies() == {(1, 0, 3, True)})
        await first.outlet.until(lambda: first.outlet.copies() == {(1, 0, 3, False)})
        old.stop()
        sources = (first.source(first, 3), first.source(second, 3))
        first.order(start_generation=plan(2, sources, step=3))
        assert isinstance(await control.hear(), Start)
        yield first, old


async def _whole(rank: Client) -> int:
    """Restore; return the descriptor of what came, which must be the state."""
    assert await rank.restore() == _STATE
    return rank.fds[-1]


@lived
async def test_it_wakes_up_during_the_restore(tmp_path: Path) -> None:
    async with (
        _second_generation(tmp_path) as (node, old),
        trainer(node, 0, generation=2) as rank,
    ):
        restoring = asyncio.create_task(_whole(rank))
        old.wake()
        handed_back = [await restoring]
        for _ in range(2):
            await old.scribbled_again()
            handed_back.append(await _whole(rank))
        await old.scribbled_again()
        for fd in handed_back:
            assert os.pread(fd, _SIZE, 0) == _STATE


@lived
async def test_it_wakes_up_before_the_new_rank_has_memory(tmp_path: Path) -> None:
    async with _second_generation(tmp_path) as (node, old):
        old.wake()
        await old.scribbled_again()
        async with trainer(node, _SIZE, generation=2) as rank:
            await _whole(rank)
            await rank.save(4, b"state after 4".ljust(_SIZE, b"."))
            await node.outlet.until(lambda: (2, 0, 4, False) in node.outlet.copies())
            await old.scribbled_again()
            assert rank.maps[0][:_SIZE] == b"state after 4".ljust(_SIZE, b".")
            assert not any("generation 2" in bad for bad in node.outlet.bad)
