"""A launcher that is alive and does not answer keeps no other node waiting."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_agent.ipc.processes import alive, identify
from everstep_proto.generated import fleet_pb2
from integration.vault_world import TIMEOUT_S, Node, plan, running, settings

_LAUNCHER = Path(__file__).with_name("vault_launcher.py")


@asynccontextmanager
async def _launched(node: Node) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """A launcher whose rank runs, and the rank's process id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(_LAUNCHER),
        str(node.settings.socket_path),
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        node.order(start_generation=plan(1))
        assert process.stdout is not None
        async with asyncio.timeout(TIMEOUT_S):
            rank = int(await process.stdout.readline())
        await node.outlet.until(lambda: node.outlet.bodies("phase_reached"))
        yield process, rank
    finally:
        process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(TIMEOUT_S):
            await process.communicate()


def _stop(node: Node) -> None:
    node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))


def test_the_ranks_of_a_hung_launcher_are_killed_in_its_place(tmp_path: Path) -> None:
    async def life() -> None:
        impatient = settings(tmp_path, stop_patience_s=0.2, reconnect_grace_s=0.2)
        async with running(impatient) as node, _launched(node) as (process, pid):
            rank = identify(pid)
            assert rank is not None
            process.send_signal(signal.SIGSTOP)
            _stop(node)
            await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
            assert not alive(rank)
            assert node.outlet.reports["demo"].settled_generation == 1
            await node.outlet.until(lambda: node.outlet.bodies("launcher_left"))
            (left,) = node.outlet.bodies("launcher_left")
            assert left.launcher_left.reason == "it did not stop generation 1 within 0.2 s"
            assert node.jobs.metrics().launcher_stops_forced_total == 1

    asyncio.run(life())


def test_a_launcher_that_stops_its_ranks_in_time_is_left_alone(tmp_path: Path) -> None:
    async def life() -> None:
        patient = settings(tmp_path, stop_patience_s=0.0)
        async with running(patient) as node, _launched(node):
            node.order(
                stop_generation=fleet_pb2.StopGeneration(
                    job="demo", generation=1, grace_ns=int(TIMEOUT_S * 1e9)
                )
            )
            await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
            assert node.jobs.metrics().launcher_stops_forced_total == 0
            node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))

    asyncio.run(life())


def test_a_member_that_is_asked_to_start_once_more_says_how_far_it_is(tmp_path: Path) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node, _launched(node):
            told = len(node.outlet.bodies("phase_reached"))
            node.order(start_generation=plan(1))
            assert len(node.outlet.bodies("phase_reached")) == told + 1
            before, again = node.outlet.bodies("phase_reached")[-2:]
            assert again.phase_reached.phase == before.phase_reached.phase
            _stop(node)
            await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
            node.order(start_generation=plan(1))
            assert len(node.outlet.bodies("phase_reached")) == told + 1
            _stop(node)
            assert len(node.outlet.bodies("generation_stopped")) == 2
            node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))

    asyncio.run(life())
