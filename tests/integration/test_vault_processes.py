"""Real training processes that are stopped, continued and killed."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_common.launcher_messages import RankProcess, Start, Started
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    TIMEOUT_S,
    Node,
    launcher,
    plan,
    running,
    settings,
    trainer,
)

_RANK = Path(__file__).with_name("vault_rank.py")


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        return (await process.stdout.readline()).decode().strip()


def _tell(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")


@asynccontextmanager
async def _rank(node: Node, step: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_RANK),
        str(node.settings.socket_path),
        "1",
        "0",
        str(step),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert await _line(process) == "committed"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def test_a_stopped_process_that_goes_on_changes_nothing_of_the_next_generation(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node, launcher(node) as control:
            node.order(start_generation=plan(1))
            await control.hear()
            async with _rank(node, 3) as old:
                await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 3, False)})
                old.send_signal(signal.SIGSTOP)
                source = node.source(node, 3)
                node.order(start_generation=plan(2, (source,), step=3))
                assert isinstance(await control.hear(), Start)
                async with trainer(node, generation=2) as rank:
                    assert await rank.restore() == b"state after 3"
                    await rank.save(4, b"state after 4")
                    await node.outlet.until(lambda: (2, 0, 4, False) in node.outlet.copies())
                    handed_back = rank.fds[-1]
                    _tell(old)
                    old.send_signal(signal.SIGCONT)
                    assert await _line(old) == "scribbled"
                    # Every byte of the new generation is as it was: what it was given to restore
                    # from, and what it wrote itself.
                    assert os.pread(handed_back, 13, 0) == b"state after 3"
                    assert rank.maps[0][:13] == b"state after 4"
                    assert all(bytes(more[:]).strip(b"\0") == b"" for more in rank.maps[1:])
                    # And nobody restores from the memory that was scribbled on.
                    failed = await rank.ask_restore()
                    assert "is bad" in failed
            await node.outlet.until(
                lambda: any("changed after it was verified" in bad for bad in node.outlet.bad)
            )

    asyncio.run(life())


def test_a_rank_that_is_killed_while_it_writes_leaves_the_step_before(tmp_path: Path) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node, launcher(node) as control:
            node.order(start_generation=plan(1))
            await control.hear()
            async with _rank(node, 3) as old:
                await control.tell(Started(1, (RankProcess(0, old.pid),), 5))
                await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 3, False)})
                old.kill()
            source = node.source(node, 3)
            node.order(start_generation=plan(2, (source,), step=3))
            await control.hear()
            async with trainer(node, 0, generation=2) as rank:
                assert await rank.restore() == b"state after 3"

    asyncio.run(life())


_LAUNCHER = """
import sys, time
from everstep_common.frames import Channel
from everstep_common.launcher_messages import *
from everstep_common.launcher_messages import TO_LAUNCHER
from everstep_common.version import TRAINER_PROTOCOL
channel = Channel.connect(sys.argv[1], TO_LAUNCHER, 20)
channel.send(Join(protocol=TRAINER_PROTOCOL, version="0.1.0", job="demo", token="secret",
                  nodes_min=1, nodes_max=1, processes_per_node=1, reform=True, restarts_max=3,
                  free_port=29500))
print(type(channel.receive(20)[0]).__name__, flush=True)
print(type(channel.receive(20)[0]).__name__, flush=True)
print(type(channel.receive(20)[0]).__name__, flush=True)
sys.stdin.readline()
"""


def test_a_launcher_that_is_killed_is_reported_once_its_ranks_are_dead_too(tmp_path: Path) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node:
            control = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _LAUNCHER,
                str(node.settings.socket_path),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={"PYTHONPATH": os.pathsep.join(sys.path)},
            )
            assert await _line(control) == "Joined"
            node.order(start_generation=plan(1))
            assert await _line(control) == "Identified"
            assert await _line(control) == "Start"
            async with _rank(node, 3) as rank:
                control.kill()
                await control.communicate()
                order = fleet_pb2.StopGeneration(job="demo", generation=1)
                node.order(stop_generation=order)
                job = node.jobs.known("demo")
                assert job is not None
                assert not node.outlet.bodies("launcher_left")
                rank.kill()
                await node.outlet.until(lambda: node.outlet.bodies("launcher_left"))
            kinds = [record.WhichOneof("body") for record in node.outlet.records]
            assert kinds.count("generation_stopped") == 1
            assert kinds.index("generation_stopped") < kinds.index("launcher_left")
            left = node.outlet.bodies("launcher_left")[0].launcher_left
            assert (left.by_user, left.reason) == (False, "its process ended")
            assert node.outlet.reports["demo"].settled_generation == 1
            assert node.outlet.copies() == {(1, 0, 3, False)}

    asyncio.run(life())
