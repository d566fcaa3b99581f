"""Jobs of one name on one node, one after the other and beside each other, known by their ids."""

from pathlib import Path

import pytest

from everstep_agent.jobs.job.context import Environment
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_common.launcher_messages import End, Identified, Notice, Start, Stop
from everstep_common.reports import GenerationStopped
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    Client,
    Kept,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)

_COPIES = {(1, 0, 3, False)}
_END = fleet_pb2.EndJob(job="demo", job_id="demo-1", succeeded=False)
_KEEP = fleet_pb2.KeepJob(job="demo", job_id="demo-7", lineage_id="demo-1")
_HOLD = fleet_pb2.HoldLauncher(job="demo", job_id="demo-7", lineage_id="demo-1")


def _job(node: Node, key: str) -> NodeJob:
    job = node.jobs.known(key)
    assert job is not None
    assert job.facts.reported_as == key
    return job


def _keys(node: Node) -> list[str]:
    return [on_node.job_id or on_node.job for on_node in node.jobs.jobs()]


async def _saved(node: Node, control: Client) -> None:
    """Run demo-1 until it has one verified snapshot in memory."""
    node.order(start_generation=plan(1))
    assert isinstance(await control.hear(), Start)
    async with trainer(node) as rank:
        await rank.save(3, b"state after 3")
        await node.outlet.until(lambda: node.outlet.copies_of("demo-1") == _COPIES)


async def _failed(node: Node) -> None:
    async with launcher(node) as control:
        await _saved(node, control)
        node.order(end_job=_END)
        assert isinstance(await control.hear(), End)


async def _restores(node: Node, control: Client) -> None:
    """Run demo-7, which goes on from what is left of demo-1."""
    source = node.source(node, 3)
    node.order(start_generation=plan(2, (source,), step=3, job_id="demo-7", lineage_id="demo-1"))
    while not isinstance(await control.hear(), Start):
        continue
    async with trainer(node, 0, generation=2) as rank:
        assert await rank.restore() == b"state after 3"
    assert _keys(node) == ["demo-7"]
    assert node.outlet.copies_of("demo-1") == _COPIES


@lived
async def test_a_launcher_that_nobody_has_answered_goes_by_its_name(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        (on_node,) = node.jobs.jobs()
        assert (on_node.job, on_node.job_id, on_node.lineage_id) == ("demo", "", "")
        assert not node.outlet.reports
        node.order(hold_launcher=_HOLD)
        assert await control.hear_any() == Identified("demo-7")
        (on_node,) = node.jobs.jobs()
        assert (on_node.job, on_node.job_id, on_node.lineage_id) == ("demo", "demo-7", "demo-1")
        assert on_node.launcher
        await control.tell(GenerationStopped(1, 29501, 99))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        assert [one.job for one in node.outlet.bodies("generation_stopped")] == ["demo-7"]
        assert [one.job for one in node.outlet.bodies("launcher_joined")] == ["demo"]


@lived
async def test_one_that_was_never_answered_ends_with_the_job_that_it_was_counted_in(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(end_job=_END)
        assert isinstance(await control.hear(), End)


@lived
async def test_the_next_job_has_what_its_predecessor_left_whichever_word_comes_first(
    tmp_path: Path,
) -> None:
    words: tuple[dict[str, object], ...] = (
        {},
        {"keep_job": _KEEP},
        {"hold_launcher": _HOLD},
        {"keep_job": _KEEP, "hold_launcher": _HOLD},
        {"hold_launcher": _HOLD, "keep_job": _KEEP},
    )
    for number, told in enumerate(words):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with running(settings(folder)) as node:
            await _failed(node)
            async with launcher(node) as control:
                for name, word in told.items():
                    node.order(**{name: word})
                await _restores(node, control)


@lived
async def test_a_launcher_that_waited_as_a_job_of_its_own_is_that_of_the_predecessors_state(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        await _failed(node)
        async with launcher(node, snapshot_bytes=4096) as control:
            # It waits for the end of the one before, and nobody knows yet what it goes on from.
            waits = fleet_pb2.HoldLauncher(job="demo", job_id="demo-7", lineage_id="demo-7")
            node.order(hold_launcher=waits)
            assert isinstance(await control.hear(), Notice)
            assert sorted(_keys(node)) == ["demo-1", "demo-7"]
            await _restores(node, control)
            node.order(end_job=fleet_pb2.EndJob(job="demo", job_id="demo-7", succeeded=True))
            assert isinstance(await control.hear(), End)
        await node.outlet.until(lambda: not node.jobs.jobs())


@lived
async def test_what_is_kept_survives_a_restart_of_the_agent_and_is_the_next_jobs(
    tmp_path: Path,
) -> None:
    kept = Kept()
    async with running(settings(tmp_path), world=Environment(stored_fds={}, keeper=kept)) as node:
        await _failed(node)
    world = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(settings(tmp_path), world=world) as node, launcher(node) as control:
        await node.outlet.until(lambda: node.outlet.copies_of("demo-1") == _COPIES)
        node.order(keep_job=_KEEP)
    again = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(settings(tmp_path), world=again) as node, launcher(node) as control:
        await node.outlet.until(lambda: node.outlet.copies_of("demo-1") == _COPIES)
        await _restores(node, control)


@lived
async def test_an_agent_that_restarts_knows_an_unanswered_launcher_that_comes_back(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path, reconnect_grace_s=60.0)
    async with running(chosen) as node, launcher(node, snapshot_bytes=4096):
        promised = _job(node, "demo").facts.promised
        assert promised is not None
    async with running(chosen) as node:
        # The answer comes before the launcher does.
        node.order(hold_launcher=_HOLD)
        assert _job(node, "demo-7").facts.promised == promised
        async with launcher(node) as control:
            assert await control.hear_any() == Identified("demo-7")
            assert _keys(node) == ["demo-7"]


@lived
async def test_a_job_that_begins_before_the_end_of_another_is_told_leaves_that_alone(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path, reconnect_grace_s=0.1)) as node:
        async with launcher(node) as control:
            await _saved(node, control)
            await control.tell(GenerationStopped(1, 29501, 99))
            await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        await node.outlet.until(lambda: node.outlet.bodies("launcher_left"))
        async with launcher(node) as control:
            node.order(start_generation=plan(2, job_id="demo-9"))
            assert isinstance(await control.hear(), Start)
            async with trainer(node, generation=2) as rank:
                await rank.save(0, b"of the other")
                await node.outlet.until(
                    lambda: node.outlet.copies_of("demo-9") == {(2, 0, 0, False)}
                )
            node.order(end_job=_END)
            assert _job(node, "demo-1").facts.ended
            assert _job(node, "demo-9").facts.active
            assert node.outlet.copies_of("demo-1") == _COPIES
            node.order(forget_job=fleet_pb2.ForgetJob(job="demo", job_id="demo-1"))
            await node.outlet.until(lambda: not node.outlet.copies_of("demo-1"))
            assert _keys(node) == ["demo-9"]
            assert node.outlet.copies_of("demo-9") == {(2, 0, 0, False)}


@lived
async def test_the_stop_of_a_generation_that_was_never_planned_here_is_that_of_its_own_job(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        await _failed(node)
        before = _job(node, "demo-1").facts
        async with launcher(node) as control:
            stop = fleet_pb2.StopGeneration(job="demo", job_id="demo-9", generation=7)
            node.order(stop_generation=stop)
            await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
            assert node.outlet.bodies("generation_stopped")[-1].job == "demo-9"
            assert _job(node, "demo-1").facts == before
            # Its plan, which had been on its way, begins nothing.
            node.order(start_generation=plan(7, job_id="demo-9"))
            node.order(start_generation=plan(8, job_id="demo-9"))
            started = await control.hear()
            assert isinstance(started, Start)
            assert started.generation == 8


@lived
async def test_a_job_that_wants_nothing_of_its_predecessor_leaves_it(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        await _failed(node)
        async with launcher(node, fresh=True) as control:
            node.order(hold_launcher=_HOLD)
            assert isinstance(await control.hear(), Notice)
            node.order(
                forget_job=fleet_pb2.ForgetJob(job="demo", job_id="demo-7", lineage_id="demo-1")
            )
            await node.outlet.until(lambda: not node.outlet.copies_of("demo-1"))
            node.order(start_generation=plan(2, job_id="demo-7"))
            assert isinstance(await control.hear(), Start)
            assert _job(node, "demo-7").facts.lineage == "demo-7"


@lived
async def test_a_controller_that_has_lost_its_journal_hears_whose_state_it_is(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        await _failed(node)
        async with launcher(node) as control:
            source = node.source(node, 3)
            going_on = plan(2, (source,), step=3, job_id="demo-7", lineage_id="demo-1")
            node.order(start_generation=going_on)
            assert isinstance(await control.hear(), Start)
            node.jobs.on_connected(forgotten=True)
            joined = node.outlet.bodies("launcher_joined")[-1].launcher_joined
            assert (joined.job_id, joined.lineage_id, joined.running_generation) == (
                "demo-7",
                "demo-1",
                2,
            )
            # It makes another key, which copies go by from then on.
            node.direct(2, 3, job_id="demo-7", lineage_id="demo-1")
            assert _job(node, "demo-7").vault.lineage == "demo-1"


@lived
async def test_a_controller_of_an_older_journal_may_call_a_job_that_runs_otherwise(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        await _saved(node, control)
        stop = fleet_pb2.StopGeneration(
            job="demo", job_id="demo-0", lineage_id="demo-1", generation=1
        )
        node.order(stop_generation=stop)
        assert isinstance(await control.hear(), Stop)
        await control.tell(GenerationStopped(1, 29501, 99))
        await node.outlet.until(lambda: node.outlet.bodies("generation_stopped"))
        assert node.outlet.bodies("generation_stopped")[-1].job == "demo-0"
        assert _keys(node) == ["demo-0"]


@pytest.mark.parametrize("keep", [True, False])
@lived
async def test_the_end_of_the_predecessor_does_not_cost_the_next_job_its_memory(
    tmp_path: Path, keep: bool
) -> None:
    async with running(settings(tmp_path, memory_kept_s=0.2)) as node:
        await _failed(node)
        if keep:
            node.order(keep_job=_KEEP)
        async with launcher(node) as control:
            # Whoever waits here may go on from it, so it waits, too.
            await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
            await _restores(node, control)
