"""Scripts that save nothing: their jobs run, and their steps count."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import everstep
from everstep_agent.jobs.job.context import Environment
from everstep_common.clock import boot_ns
from everstep_common.launcher_messages import (
    TO_LAUNCHER,
    Joined,
    Notice,
    RankProcess,
    Start,
    Started,
    StepSeen,
    Stop,
)
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from integration.real_fleet import JOB, RealFleet, running_fleet
from integration.vault_world import (
    Client,
    Kept,
    Node,
    join_message,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

_SCRIPT = """
import os, sys, time
for step in range(100_000):
    time.sleep(0.02)
    if os.environ["RANK"] == "0":
        print(f"Iteration {step}/100000", flush=True)
    if os.path.exists(sys.argv[1]):
        break
"""


def steps(node: Node) -> list[tuple[int, bool]]:
    """Every step that the node has told, and whether it speaks for the job."""
    told = [record.steps_completed for record in node.outlet.bodies("steps_completed")]
    return [(one.first_step + i, one.of_job) for one in told for i in range(len(one.end_boot_ns))]


@lived
async def test_a_step_that_was_seen_is_one_of_all_ranks_of_the_job(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1, processes=3, first_rank=3))
        assert isinstance(await control.hear(), Start)
        for generation, step in ((2, 9), (1, 3), (1, 3), (1, 5)):
            await control.tell(StepSeen(generation, step, boot_ns()))
        await node.outlet.until(lambda: len(steps(node)) == 2)
        assert steps(node) == [(3, True), (5, True)]


@lived
async def test_ranks_that_call_in_tell_their_steps_themselves(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node, size_bytes=0):
            await control.tell(StepSeen(1, 3, boot_ns()))
            await control.tell(GenerationStopped(1, 29501, boot_ns()))
            await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
            assert steps(node) == []


@lived
async def test_steps_that_are_told_without_snapshots_count(tmp_path: Path) -> None:
    def train() -> None:
        run = everstep.init(
            {
                "EVERSTEP_SOCKET": str(node.settings.socket_path),
                "EVERSTEP_JOB": "demo",
                "EVERSTEP_GENERATION": "1",
                "EVERSTEP_TOKEN": "secret",
            }
        )
        for step in range(3):
            run.step(step)

    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        await asyncio.to_thread(train)
        await node.outlet.until(lambda: len(steps(node)) == 3)
        assert steps(node) == [(0, False), (1, False), (2, False)]
        phases = [one.phase_reached.phase for one in node.outlet.bodies("phase_reached")]
        assert phases == [fleet_pb2.PHASE_ATTACHED, fleet_pb2.PHASE_RESTORED]


@lived
async def test_a_launcher_is_told_at_once_that_the_controller_is_away(tmp_path: Path) -> None:
    around = Environment(
        stored_fds={}, keeper=Kept(), controller_away=lambda: "waiting for the controller"
    )
    async with running(settings(tmp_path), world=around) as node:
        client = await Client.connect(node, TO_LAUNCHER)
        try:
            assert await client.ask(join_message()) == Joined(node.name)
            assert await client.hear() == Notice("waiting for the controller")
        finally:
            client.close()


@pytest.fixture
def stuck() -> Iterator[int]:
    """A process that does not end."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process.pid
    process.kill()
    process.wait()


def test_nobody_waits_for_a_process_that_the_launcher_has_given_up(
    tmp_path: Path, stuck: int
) -> None:
    async def scenario() -> None:
        chosen = replace(settings(tmp_path), reconnect_grace_s=0.1)
        async with running(chosen) as node:
            async with launcher(node) as control:
                node.order(start_generation=plan(1))
                start = await control.hear()
                assert isinstance(start, Start)
                await control.tell(Started(1, (RankProcess(0, stuck),), boot_ns()))
                await node.outlet.until(lambda: node.outlet.bodies("phase_reached"))
                node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
                assert isinstance(await control.hear(), Stop)
                await control.tell(GenerationStopped(1, 29501, boot_ns(), (stuck,)))
                await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
                node.order(start_generation=plan(2))
                assert isinstance(await control.hear(), Start)
            os.kill(stuck, 0)

    lived(scenario)()


@pytest.mark.timeout(180)
def test_a_job_of_two_nodes_runs_and_counts_its_steps_by_the_output_of_one_rank() -> None:
    with running_fleet("node-1", "node-2") as fleet:
        script, enough = fleet.folder / "train.py", fleet.folder / "enough"
        script.write_text(_SCRIPT)
        fleet.launch_script([str(script), str(enough)])
        fleet.until("running", 60, lambda: _runs(fleet))
        before = fleet.job().step
        fleet.until("more steps", 60, lambda: fleet.job().step > before)
        killed = fleet.rank("node-2")
        assert killed is not None
        os.kill(killed.pid, 9)
        fleet.until("the next generation", 60, lambda: fleet.job().generation == 2)
        fleet.until("running again", 60, lambda: _runs(fleet))
        enough.touch()
        fleet.until("the end", 60, lambda: _over(fleet))


def _runs(fleet: RealFleet) -> bool:
    job = fleet.job()
    return job.state == "running" and job.job == JOB


def _over(fleet: RealFleet) -> bool:
    return all(child.process.poll() == 0 for child in fleet.launchers.values())
