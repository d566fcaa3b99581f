"""What one user may take of an agent: the largest job starts as shipped, and a flood does not."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.jobs.job.context import Environment, user_refusals
from everstep_agent.jobs.state.settings import JobsSettings
from everstep_agent.quotas.user_quotas import Quota
from everstep_common.frames import encode
from everstep_common.launcher_messages import TO_LAUNCHER, Start, Stop
from everstep_common.rank_messages import TO_TRAINER, Attached, Progress, Refused
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    TIMEOUT_S,
    Client,
    Kept,
    Node,
    attach_message,
    join_message,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

_MIB = 1 << 20
_NOBODY = 65534
_RANKS = 64
_FLOODS = Path(__file__).with_name("stranger_floods.py")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")


def _as_shipped(folder: Path) -> JobsSettings:
    """Return what tests need, with every quota as shipped."""
    return replace(
        settings(folder), memory_per_user_max_ratio=JobsSettings().memory_per_user_max_ratio
    )


@asynccontextmanager
async def _counting(chosen: JobsSettings) -> AsyncIterator[tuple[Node, dict[tuple[int, str], int]]]:
    """A node, and who was refused by what."""
    refusals = user_refusals()
    world = Environment(stored_fds={}, keeper=Kept(), refusals=refusals)
    counts: dict[tuple[int, str], int] = {}
    async with running(chosen, world=world) as node:
        yield node, counts
    counts.update(refusals.by_name())


async def _attached(node: Node, rank: int, generation: int) -> Client:
    client = await Client.connect(node, TO_TRAINER)
    answer = await client.ask(attach_message(rank=rank, generation=generation))
    assert isinstance(answer, Attached), answer
    return client


async def _saved(client: Client, step: int) -> None:
    await client.reserve()
    await client.save(step, b"state")
    await client.tell(Progress(step, 1, 1))


@lived
async def test_64_ranks_that_start_together_and_again_are_refused_nothing_as_shipped(
    tmp_path: Path,
) -> None:
    async with _counting(_as_shipped(tmp_path)) as (node, refused):  # noqa: SIM117
        async with launcher(node, processes_per_node=_RANKS) as control:
            for generation in range(1, 5):
                node.order(start_generation=plan(generation, processes=_RANKS))
                while not isinstance(await control.hear(), Start):
                    pass
                # Those of the generation before are still connected when these come.
                ranks = await asyncio.gather(
                    *(_attached(node, rank, generation) for rank in range(_RANKS))
                )
                await asyncio.gather(*(_saved(rank, generation) for rank in ranks))
                stop = fleet_pb2.StopGeneration(job="demo", generation=generation)
                node.order(stop_generation=stop)
                while not isinstance(await control.hear(), Stop):
                    pass
                for rank in ranks:
                    rank.close()
                await control.tell(GenerationStopped(generation, 1, 29500))
    assert refused == {}


@lived
async def test_64_jobs_of_one_rank_start_together_as_shipped(tmp_path: Path) -> None:
    async with _counting(_as_shipped(tmp_path)) as (node, refused), AsyncExitStack() as stack:
        for number in range(_RANKS):
            await stack.enter_async_context(launcher(node, job=f"sweep-{number}"))
    assert refused == {}


@lived
async def test_a_user_who_begins_job_after_job_is_told_the_key(tmp_path: Path) -> None:
    chosen = settings(tmp_path, new_jobs_per_user_per_min=6.0)
    async with _counting(chosen) as (node, refused):
        async with launcher(node, job="first"), launcher(node, job="second"):
            reason = await _refused(node, "third")
            assert "jobs.new_jobs_per_user_per_min" in reason
            assert [job.job for job in node.jobs.jobs()] == ["first", "second"]
        # A launcher that comes back begins nothing.
        async with launcher(node, job="second"):
            pass
    assert refused == {(os.getuid(), "new_jobs"): 1}


@lived
async def test_a_user_with_as_many_jobs_as_it_may_have_is_told_the_key(tmp_path: Path) -> None:
    async with running(settings(tmp_path, jobs_per_user_max=1)) as node:
        async with launcher(node, job="first"):
            assert "jobs.jobs_per_user_max" in await _refused(node, "second")
        async with launcher(node, job="first"):
            pass


async def _refused(node: Node, job: str) -> str:
    client = await Client.connect(node, TO_LAUNCHER)
    answer = await client.ask(join_message(job=job))
    client.close()
    assert isinstance(answer, Refused), answer
    return answer.reason


@lived
async def test_one_user_leaves_a_tenth_of_the_memory_as_shipped(tmp_path: Path) -> None:
    chosen = replace(_as_shipped(tmp_path), memory_bytes_max=40 * _MIB)
    async with _counting(chosen) as (node, refused), launcher(node), AsyncExitStack() as stack:
        node.order(start_generation=plan(1))
        rank = await stack.enter_async_context(trainer(node))
        with pytest.raises(AssertionError, match=r"jobs\.memory_per_user_max_ratio leaves"):
            await rank.reserve(13 * _MIB)
        await rank.reserve(12 * _MIB)
    assert refused == {(os.getuid(), "memory"): 1}


# What a process does that was given a connection of a rank.
_TELLS_WITHOUT_END = """
import socket, sys
from everstep_common.frames import encode
from everstep_common.rank_messages import Progress
words = b"".join(encode(Progress(step, 1, 1)) for step in range(1000))
rank = socket.socket(fileno=int(sys.argv[1]))
while True:
    rank.sendall(words)
    print(flush=True)
"""


@lived
async def test_a_rank_that_never_stops_telling_its_progress_holds_up_nobody(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node, processes_per_node=2):
        node.order(start_generation=plan(1, processes=2))
        async with trainer(node, rank=1) as other, _flooding(node) as flood:
            assert flood.stdout is not None
            for step in range(1, 4):
                await flood.stdout.readline()
                await other.save(step, b"state")
            assert flood.returncode is None


@asynccontextmanager
async def _flooding(node: Node) -> AsyncIterator[asyncio.subprocess.Process]:
    """A rank that sends faster than the agent reads."""
    with socket.socket(socket.AF_UNIX) as raw:
        await asyncio.to_thread(raw.connect, str(node.settings.socket_path))
        raw.sendall(encode(attach_message()))
        flood = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _TELLS_WITHOUT_END, str(raw.fileno())),
            pass_fds=(raw.fileno(),),
            stdout=asyncio.subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
    try:
        yield flood
    finally:
        flood.kill()
        await flood.communicate()


@pytest.fixture
def open_path(tmp_path: Path) -> Path:
    """Return a folder that other users may enter."""
    tmp_path.chmod(0o755)
    return tmp_path


@needs_root
@lived
async def test_a_flood_of_connections_is_counted_by_its_user_and_keeps_nobody_out(
    open_path: Path,
) -> None:
    chosen = settings(open_path, connections_per_user_per_s=2.0)
    refusals = user_refusals()
    world = Environment(stored_fds={}, keeper=Kept(), refusals=refusals)
    async with running(chosen, world=world) as node:
        floods = await asyncio.create_subprocess_exec(
            *(sys.executable, str(_FLOODS), str(open_path), "agent.sock", str(_NOBODY), "1000"),
            stdout=asyncio.subprocess.PIPE,
            env={"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        async with asyncio.timeout(5 * TIMEOUT_S), launcher(node) as control:
            node.order(start_generation=plan(1))
            assert isinstance(await control.hear(), Start)
            async with trainer(node) as rank:
                await rank.save(1, b"state")
                out, _ = await floods.communicate()
        assert b"jobs.connections_per_user_per_s" in out
    assert set(refusals.counts) == {(_NOBODY, Quota.CONNECTION_RATE)}
    assert refusals.counts[_NOBODY, Quota.CONNECTION_RATE] > 500


async def _hear_all(client: Client) -> None:
    while True:
        await client.hear_any()


@lived
async def test_a_launcher_that_reads_nothing_is_hung_up_on_and_joins_anew(tmp_path: Path) -> None:
    told = 0
    async with running(settings(tmp_path)) as node:
        async with launcher(node) as control:
            while node.jobs.metrics().launchers and told < 100_000:
                told += 1
                node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
                if not told % 100:
                    await asyncio.sleep(0)
            assert told < 10_000
            with pytest.raises(ConnectionError):
                await _hear_all(control)
        async with launcher(node):
            pass
