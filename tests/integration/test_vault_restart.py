"""The agent is killed: its snapshots are in the holder's hands, and are there again after it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_agent.jobs.surroundings import Surroundings
from everstep_common.trainer_messages import Commit, Entry, Notice, Refused
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    TIMEOUT_S,
    Kept,
    Node,
    launcher,
    plan,
    running,
    settings,
    trainer,
    training,
)

_AGENT = Path(__file__).with_name("vault_agent.py")
_HOLD = "import sys; from everstep_agent.holder import main; sys.exit(main(sys.argv[1:]))"


class _Said:
    """What a process prints, line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def until(self, wanted: Callable[[str], bool]) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                line = (await self.process.stdout.readline()).decode()
                assert line, "it ended"
                if wanted(line):
                    return line.strip()

    async def ready(self) -> int:
        """Return the agent's process id."""
        return int((await self.until(lambda line: line.startswith("ready"))).split()[1])


@asynccontextmanager
async def _held_agent(folder: Path) -> AsyncIterator[_Said]:
    environ = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    hold = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _HOLD, "--die-with-parent", "--"),
        *(sys.executable, str(_AGENT), str(folder)),
        stdout=asyncio.subprocess.PIPE,
        env=environ,
    )
    try:
        yield _Said(hold)
    finally:
        hold.terminate()
        await hold.communicate()


def test_snapshots_survive_a_killed_agent_through_the_holder(tmp_path: Path) -> None:
    async def life() -> None:
        async with _held_agent(tmp_path) as agent:
            first = await agent.ready()
            node = Node("node-1", None, None, settings(tmp_path))  # type: ignore[arg-type]
            async with launcher(node), trainer(node) as rank:
                await rank.save(1, b"state after 1")
                await agent.until(lambda line: line.startswith("copies [(1, 0, 1)]"))
                begun = await rank.begin(2, b"half")
                os.kill(first, signal.SIGKILL)
                second = await agent.ready()
                assert second != first
                await agent.until(lambda line: line.startswith("copies [(1, 0, 1)]"))
                async with launcher(node, running_generation=1), trainer(node) as again:
                    # The same memory, not new memory: the bytes are there.
                    assert again.maps[0][:13] == b"state after 1"
                    assert os.fstat(again.fds[0]).st_ino == os.fstat(rank.fds[0]).st_ino
                    manifest = (Entry("w", 0, 4),)
                    torn = await again.ask(Commit(2, begun.slot, begun.epoch, manifest))
                    assert isinstance(torn, Refused)
                    await again.save(2, b"state after 2")
                    await agent.until(lambda line: line.startswith("copies [(1, 0, 1), (1, 0, 2)]"))

    asyncio.run(life())


def test_copies_that_changed_while_the_agent_was_away_are_dropped_and_named(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        kept = Kept()
        chosen = settings(tmp_path)
        before = Surroundings(stored_fds={}, keeper=kept)
        async with running(chosen, world=before) as node, training(node) as rank:
            await rank.save(1, b"one")
            await rank.save(2, b"two")
            await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
            rank.maps[0][1] ^= 1
        after = Surroundings(stored_fds=kept.hand_over(), keeper=kept)
        async with running(chosen, world=after) as node:
            await node.outlet.until(lambda: node.outlet.bad)
            assert "is not what was verified before" in node.outlet.bad[0]
            await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 2, False)})
        kept.close()

    asyncio.run(life())


def test_replicas_survive_a_restart_and_are_hashed_again(tmp_path: Path) -> None:
    async def life() -> None:
        kept = Kept()
        chosen = settings(tmp_path / "b")
        world = Surroundings(stored_fds={}, keeper=kept)
        async with (
            running(settings(tmp_path / "a"), "node-1") as first,
            training(first) as rank,
            running(chosen, "node-2", world) as second,
        ):
            second.direct(1)
            first.direct(1, target=second)
            await rank.save(1, b"state after 1")
            await second.outlet.until(lambda: second.outlet.copies())
            source = second.source(second, 1)
        world = Surroundings(stored_fds=kept.hand_over(), keeper=kept)
        async with running(chosen, "node-2", world) as second, launcher(second) as control:
            await second.outlet.until(lambda: second.outlet.copies() == {(1, 0, 1, True)})
            second.order(start_generation=plan(2, (source,), step=1))
            await control.hear()
            async with trainer(second, 0, generation=2) as rank:
                assert await rank.restore() == b"state after 1"
            second.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))
            await second.outlet.until(lambda: not second.outlet.copies())
            assert second.jobs.metrics().vault_memory_bytes == 0
        assert not kept.fds

    asyncio.run(life())


def test_after_a_restart_the_token_and_the_generation_still_count(tmp_path: Path) -> None:
    async def life() -> None:
        chosen = settings(tmp_path)
        async with running(chosen) as node, training(node, 3):
            pass
        async with running(chosen) as node:
            assert [(job.job, job.generation) for job in node.jobs.jobs()] == [("demo", 3)]
            node.order(start_generation=plan(3))
            async with launcher(node, running_generation=3) as control:
                # Nothing is started again; the next thing it hears is a later order.
                hold = fleet_pb2.HoldLauncher(job="demo")
                node.order(hold_launcher=hold)
                assert await control.hear() == Notice("test")
                async with trainer(node, 0, generation=3):
                    pass

    asyncio.run(life())
