"""A storage process is stopped anywhere in what it does, and wakes up after it was overtaken.

Two real agents with real storage processes; the test is the controller. The process of the first
one gets a moment to work, then another, and so on: after each number of moments the next
generation takes over, on the other node.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from everstep_cli.demo import reaper
from everstep_common.launcher_messages import Start
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually
from integration.latest_watch import LatestWatch
from integration.storage_world import published, save_and_store, storage_in, stored
from integration.vault_world import (
    Client,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

# So short that the interpreter of the process does only a part of a request in it.
_MOMENT_S = 0.0005
_STATE = 200_000


def _workers() -> set[int]:
    below = reaper.descendants([os.getpid()], reaper.parents())
    return {pid for pid in below if b"storage/worker/main.py" in _command_line(pid)}


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended since it was listed
        return b""


class _Stopped:
    """The storage processes of the first node, stopped; ``moments`` lets them work a little."""

    def __init__(self, pids: set[int]) -> None:
        self._pids = pids
        self._signal(signal.SIGSTOP)

    async def moments(self, count: int) -> None:
        for _ in range(count):
            self._signal(signal.SIGCONT)
            await asyncio.sleep(_MOMENT_S)
            self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@asynccontextmanager
async def _node(
    folder: Path, name: str, shared: Path, generation: int
) -> AsyncIterator[tuple[Node, Client]]:
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(running(settings(folder / name), name))
        joined = launcher(node, storage=storage_in(shared))
        control = await stack.enter_async_context(joined)
        node.order(start_generation=plan(generation))
        assert isinstance(await control.hear(), Start)
        yield node, await stack.enter_async_context(trainer(node, _STATE, generation=generation))


async def _publish(node: Node, generation: int, copy: fleet_pb2.VaultCopy) -> None:
    """Have a file become a whole step, and ``latest`` moved to it."""
    told = published([copy], generation)
    node.direct(generation, copy.step, persist_steps=[copy.step], publish=told)
    job = node.jobs.known("demo")
    assert job is not None
    key = (copy.generation, copy.step)
    # The manifest may be seen before ``latest`` has moved to it.
    moving = job.storage.files.publisher
    # Who is stopped with the lock in its hand is waited for, once for each order.
    for _ in range(3):
        with contextlib.suppress(TimeoutError):
            await node.outlet.until(lambda: key in _whole(node) and not moving.pending)
            return
    raise AssertionError(f"{key} is not published")


def _whole(node: Node) -> set[tuple[int, int]]:
    return {(one.generation, one.step) for one in node.outlet.reports["demo"].stored}


async def _take_over(node: Node, rank: Client, stopped: _Stopped, *, wakes_early: bool) -> None:
    """Begin generation 2 from step 1, and store a step of its own."""
    target = fleet_pb2.StoredStep(generation=1, step=1, world_size=1)
    node.direct(2, publish=fleet_pb2.Publish(generation=2, target=target))
    await rank.save(2, b"new".ljust(_STATE, b"."))
    if wakes_early:
        stopped.wake()
    node.direct(2, 2, persist_steps=[2], publish=fleet_pb2.Publish(generation=2, target=target))
    await _publish(node, 2, await stored(node, 2, generation=2))
    stopped.wake()


async def _done(node: Node) -> None:
    job = node.jobs.known("demo")
    assert job is not None
    await eventually(lambda: not job.storage.files.pending)


@pytest.mark.parametrize("request_of", ["write", "publish"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 13, 21, 34])
@lived
async def test_what_an_overtaken_storage_process_does_late_changes_nothing(
    tmp_path: Path, request_of: str, count: int
) -> None:
    shared = tmp_path / "steps"
    with LatestWatch(shared / "demo") as watch:
        async with _node(tmp_path, "node-1", shared, 1) as (old, rank):
            await _publish(old, 1, await save_and_store(old, rank, 1, b"common".ljust(_STATE)))
            copy = None
            if request_of == "publish":
                copy = await save_and_store(old, rank, 2, b"abandoned".ljust(_STATE))
            else:
                await rank.save(2, b"abandoned".ljust(_STATE))
                await old.outlet.until(lambda: (1, 0, 2, False) in old.outlet.copies())
            stopped = _Stopped(_workers())
            try:
                if copy is not None:
                    old.direct(1, 2, persist_steps=[2], publish=published([copy], 1))
                else:
                    old.direct(1, 2, persist_steps=[2])
                await stopped.moments(count)
                async with _node(tmp_path, "node-2", shared, 2) as (new, heir):
                    await _take_over(new, heir, stopped, wakes_early=count % 2 == 1)
                    await _done(old)
            finally:
                stopped.wake()
    watch.check({2: 1})
    assert (watch.newest.generation, watch.newest.target) == (2, (2, 2))
