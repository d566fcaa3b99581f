"""A finding about a job's storage goes when the job leaves the node, however it leaves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from everstep_agent.detectors.persistence import FAILING
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from everstep_common.launcher_messages import End, Notice, Start, Stop
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually
from integration.storage_world import storage_in
from integration.vault_clients import Client
from integration.vault_world import TIMEOUT_S, Node, launcher, lived, plan, running, settings
from integration.vault_world import trainer as attached

_KEY = FindingKey("job/demo/storage", FAILING)


def _judged(node: Node) -> Judgement:
    """What is said of an open finding."""
    (judged,) = [one for one in node.jobs.judgements([_KEY]) if one.key == _KEY]
    return judged


@asynccontextmanager
async def _failing(node: Node, folder: Path) -> AsyncIterator[Client]:
    """A job whose first step does not reach its storage; its launcher."""
    async with launcher(node, storage=storage_in(folder)) as control:
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        (folder / "demo/gen-1").write_bytes(b"in the way")
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with attached(node) as rank:
            await rank.save(1, b"state 1")
            await node.outlet.until(lambda: (1, 0, 1, False) in node.outlet.copies())
            node.direct(1, 1, persist_steps=[1])
            await eventually(lambda: isinstance(_judged(node), Faulty))
            yield control


async def _hear(control: Client, kind: type) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not isinstance(await control.hear(), kind):
            pass


async def _stop(node: Node, control: Client) -> None:
    node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
    await _hear(control, Stop)
    await control.tell(GenerationStopped(1, 29501, 99))
    await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))


@lived
async def test_the_jobs_user_is_told_in_the_launchers_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path)) as node, _failing(node, folder) as control:
        while not isinstance(told := await control.hear(), Notice):
            pass
        assert told.text.startswith("step 1 is not in storage, only in memory: ")
        assert "gen-1 is not a folder" in told.text


@lived
async def test_it_goes_when_the_node_becomes_a_spare(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path)) as node, _failing(node, folder) as control:
        await _stop(node, control)
        # The job goes on elsewhere, and this node has nothing of it to bring to storage.
        node.direct(2)
        assert isinstance(_judged(node), Healthy)


@lived
async def test_what_a_generation_could_not_store_is_no_trouble_of_the_next_one(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path)) as node, _failing(node, folder) as control:
        await _stop(node, control)
        node.order(start_generation=plan(2))
        await _hear(control, Start)
        node.direct(2)
        assert isinstance(_judged(node), Healthy)


@lived
async def test_it_goes_when_the_job_ends(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    chosen = settings(tmp_path, storage_drain_timeout_s=0.2)
    async with running(chosen) as node, _failing(node, folder) as control:
        await _stop(node, control)
        node.direct(1, 1)  # the controller has given it up
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
        await _hear(control, End)
        assert isinstance(_judged(node), Healthy)


@lived
async def test_it_goes_when_the_launcher_comes_back_without_storage(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path)) as node:
        async with _failing(node, folder) as control:
            await _stop(node, control)
        assert isinstance(_judged(node), Faulty), "the step is still to be stored"
        async with launcher(node) as again:
            node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
            await again.hear()
            await eventually(lambda: isinstance(_judged(node), Healthy))


@lived
async def test_it_goes_when_the_agent_is_started_again_without_the_job(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        assert isinstance(_judged(node), Healthy)


@lived
async def test_another_job_beside_it_is_not_concerned(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with (
        running(settings(tmp_path)) as node,
        _failing(node, folder),
        launcher(node, job="other", storage=storage_in(tmp_path / "other")),
    ):
        faulty = [one.key for one in node.jobs.judgements([]) if isinstance(one, Faulty)]
        assert faulty == [_KEY]
        await eventually(partial(_is_well, node, "job/other/storage"))


def _is_well(node: Node, component: str) -> bool:
    return any(
        isinstance(one, Healthy) and one.key == FindingKey(component, FAILING)
        for one in node.jobs.judgements([])
    )
