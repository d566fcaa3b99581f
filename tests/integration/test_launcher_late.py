"""A launcher learns which job of its name it is of, and one that comes too late is told so."""

from pathlib import Path

import pytest

from everstep_common.launcher_messages import End, Hold, Identified, Joined, Notice, Start
from everstep_common.rank_messages import Refused
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    Client,
    Node,
    join_message,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)


def _plan(job_id: str, generation: int = 1) -> fleet_pb2.StartGeneration:
    ordered = plan(generation)
    ordered.job_id = job_id
    return ordered


def _end(job_id: str) -> fleet_pb2.EndJob:
    return fleet_pb2.EndJob(job="demo", succeeded=False, job_id=job_id)


async def _come_back(node: Node, job_id: str) -> tuple[Client, object]:
    client = await Client.connect(node, (Joined, Refused, End, Identified, Start, Hold))
    return client, await client.ask(join_message(job_id=job_id))


@lived
async def test_a_launcher_is_told_which_job_it_is_of_before_it_is_told_anything_else(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node, job_id="") as control:
        node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo", job_id="demo-5"))
        assert await control.hear_any() == Identified("demo-5")
        assert isinstance(await control.hear_any(), Notice)
        node.order(start_generation=_plan("demo-5"))
        assert await control.hear_any() == Identified("demo-5")
        assert isinstance(await control.hear_any(), Start)
        (on_node,) = node.jobs.jobs()
        assert (on_node.launcher, on_node.job_id) == (True, "demo-5")


@lived
async def test_a_launcher_that_missed_the_end_of_its_job_hears_it_when_it_comes_back(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        async with launcher(node, job_id="") as control:
            node.order(start_generation=_plan("demo-5"))
            assert await control.hear_any() == Identified("demo-5")
            assert isinstance(await control.hear_any(), Start)
            async with trainer(node) as rank:
                # Something is kept, so the node goes on to know the job.
                await rank.save(0, b"kept")
                await node.outlet.until(node.outlet.copies)
        await node.outlet.until(lambda: not node.jobs.jobs()[0].launcher)
        node.order(end_job=_end("demo-5"))
        client, answer = await _come_back(node, "demo-5")
        assert isinstance(answer, Joined)
        end = await client.hear()
        assert end == End(False, "it ended while this launcher was away (test)")
        client.close()
        assert len(node.outlet.bodies("launcher_joined")) == 1


@lived
async def test_a_launcher_is_not_let_in_where_the_next_job_of_its_name_has_been(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node, job_id="") as control:
        node.order(start_generation=_plan("demo-9"))
        assert await control.hear_any() == Identified("demo-9")
        client, answer = await _come_back(node, "demo-5")
        assert isinstance(answer, Refused)
        assert "its job ended while this launcher was away" in answer.reason
        client.close()


@lived
async def test_the_end_of_the_job_before_is_not_that_of_the_one_that_runs(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node, job_id="") as control:
        node.order(start_generation=_plan("demo-9"))
        assert await control.hear_any() == Identified("demo-9")
        assert isinstance(await control.hear_any(), Start)
        node.order(end_job=_end("demo-5"))
        node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo", job_id="demo-9"))
        assert await control.hear_any() == Identified("demo-9")
        assert isinstance(await control.hear_any(), Notice)
        node.order(end_job=_end("demo-9"))
        assert isinstance(await control.hear_any(), End)


@lived
async def test_an_agent_that_was_restarted_still_knows_which_job_its_launcher_is_of(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path)
    async with running(chosen) as node, launcher(node, job_id="") as control:
        node.order(start_generation=_plan("demo-5"))
        assert await control.hear_any() == Identified("demo-5")
    async with (
        running(chosen) as node,
        launcher(node, job_id="demo-5", running_generation=1) as control,
    ):
        assert await control.hear_any() == Identified("demo-5")
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        (joined,) = node.outlet.bodies("launcher_joined")
        assert joined.launcher_joined.job_id == "demo-5"


@lived
@pytest.mark.parametrize("spare", [True, False])
async def test_a_launcher_that_waits_is_told_whether_as_a_spare(
    tmp_path: Path, spare: bool
) -> None:
    async with running(settings(tmp_path)) as node:
        order = fleet_pb2.HoldLauncher(job="demo", job_id="demo-5", spare=spare)
        async with launcher(node, job_id="") as control:
            node.order(hold_launcher=order)
            assert await control.hear() == Hold("test", spare)


@lived
async def test_a_launcher_of_a_version_before_is_only_told_that_it_waits(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        order = fleet_pb2.HoldLauncher(job="demo", job_id="demo-5", spare=True)
        async with launcher(node, job_id="", protocol=15) as control:
            node.order(hold_launcher=order)
            assert await control.hear() == Notice("test")
