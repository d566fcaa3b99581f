"""A job's whole life at one agent, as the controller, the launcher and the ranks see it."""

import os
from pathlib import Path

from everstep_common.launcher_messages import End, Hold, RankProcess, Start, Started, Stop
from everstep_common.rank_messages import NothingToRestore, Progress, Ready, Restore
from everstep_common.reports import GenerationFinished, GenerationStopped, RankExited
from everstep_proto.generated import fleet_pb2
from integration.vault_world import launcher, lived, plan, running, settings, trainer, training


@lived
async def test_a_generation_runs_and_stops_and_the_next_one_restores_here(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        node.order(start_generation=plan(1))
        start = await control.hear()
        assert isinstance(start, Start)
        assert start.restore_step is None
        await control.tell(Started(1, (RankProcess(0, os.getpid()),), 5))
        async with trainer(node) as rank:
            assert await rank.ask(Restore(())) == NothingToRestore()
            await rank.tell(Ready(7))
            for step in (0, 1):
                await rank.save(step, f"state after {step}".encode())
                await rank.tell(Progress(step, 10 + step, 1))
            await node.outlet.until(lambda: node.outlet.copies() >= {(1, 0, 1, False)})
            node.direct(1, 1)
            await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 1, False)})
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=1))
        assert await control.hear() == Stop(1, 0.0, "test")
        await control.tell(GenerationStopped(1, 29501, 99))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        assert node.outlet.reports["demo"].settled_generation == 1

        source = node.source(node, 1)
        node.order(start_generation=plan(2, (source,), step=1))
        again = await control.hear()
        assert isinstance(again, Start)
        assert again.restore_step == 1
        async with trainer(node, 0, generation=2) as rank:
            assert await rank.restore() == b"state after 1"
        await control.tell(GenerationFinished(2, 120))
        await node.outlet.until(lambda: node.outlet.bodies("generation_finished"))
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))
        assert await control.hear() == End(succeeded=True, reason="test")
        await node.outlet.until(lambda: not node.outlet.copies())
        phases = [record.phase_reached.phase for record in node.outlet.bodies("phase_reached")]
        assert phases[:3] == [1, 2, 3]
        steps = [record.steps_completed for record in node.outlet.bodies("steps_completed")]
        assert steps[0].first_step == 0


@lived
async def test_the_last_steps_of_a_rank_are_told_before_its_end(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            # Faster than progress is sent, which is five times a second.
            for step in range(20):
                await rank.tell(Progress(step, 10 + step, 0))
        await control.tell(
            RankExited(generation=1, rank=0, exit_code=0, signal=9, at_boot_ns=40, last_line="")
        )
        await node.outlet.until(lambda: node.outlet.bodies("rank_exited"))
        kinds = [record.WhichOneof("body") for record in node.outlet.records]
        told = [record.steps_completed for record in node.outlet.bodies("steps_completed")]
        assert sum(len(steps.end_boot_ns) for steps in told) == 20
        assert kinds[-1] == "rank_exited"


@lived
async def test_after_the_end_the_name_serves_another_job_from_its_first_generation(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        async with launcher(node) as control:
            node.order(start_generation=plan(5))
            await control.hear()
            async with trainer(node, generation=5) as rank:
                await rank.save(1, b"of the first job")
                await node.outlet.until(lambda: node.outlet.copies())
            node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
            assert isinstance(await control.hear(), End)
        async with launcher(node, token="another") as control:
            node.order(start_generation=plan(1, job_id="demo-9"))
            assert isinstance(await control.hear(), Start)
            async with trainer(node, token="another") as rank:
                await rank.save(0, b"of the second")
                mine = {(1, 0, 0, False)}
                await node.outlet.until(lambda: node.outlet.copies_of("demo-9") == mine)
            assert node.outlet.copies_of("demo-1") == {(5, 0, 1, False)}


@lived
async def test_an_order_that_comes_again_does_nothing_or_is_answered_again(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        for _ in range(2):
            node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        stop = fleet_pb2.StopGeneration(job="demo", generation=1)
        node.order(stop_generation=stop)
        assert isinstance(await control.hear(), Stop)
        await control.tell(GenerationStopped(1, 29501, 99))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        node.order(stop_generation=stop)
        node.order(start_generation=plan(1))
        node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
        assert await control.hear() == Hold("test", spare=False)
        stopped = [record.generation_stopped for record in node.outlet.bodies("generation_stopped")]
        assert [(one.generation, one.free_port) for one in stopped] == [(1, 29501)] * 2


@lived
async def test_a_stop_without_a_launcher_is_answered_by_the_agent(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        node.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=4))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        assert node.outlet.reports["demo"].settled_generation == 4


@lived
async def test_a_generation_is_settled_once_its_last_commit_is_verified(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        async with trainer(node, 8 << 20) as rank:
            await rank.save(1, bytes(8 << 20))
        await control.tell(GenerationStopped(1, 29501, 99))
        await node.outlet.until(
            lambda: (
                "demo" in node.outlet.reports
                and node.outlet.reports["demo"].settled_generation == 1
            )
        )
        assert node.outlet.copies() == {(1, 0, 1, False)}


@lived
async def test_a_state_that_grew_gets_larger_slots_and_keeps_its_copies(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        await rank.save(1, b"small")
        await node.outlet.until(lambda: node.outlet.copies())
        await rank.reserve(3 * 4096)
        await rank.save(2, bytes(3 * 4096))
        await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
        node.direct(1, 2)
        await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 2, False)})
        assert node.jobs.metrics().vault_memory_bytes == 3 * 3 * 4096
