"""What an agent keeps of a job that failed, from the first word of the next one of its name on."""

from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_common.launcher_messages import TO_LAUNCHER, End, Joined, Start
from everstep_common.rank_messages import Refused, Restore, RestoredCopies
from everstep_common.reports import GenerationFinished
from everstep_proto.generated import fleet_pb2
from integration.storage_world import storage_in
from integration.vault_world import (
    JOB_ID,
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

_NEXT = "demo-2"
_KEEP = fleet_pb2.KeepJob(job="demo", job_id=_NEXT, lineage_id=JOB_ID)
_FORGET = fleet_pb2.ForgetJob(job="demo", job_id=_NEXT, lineage_id=JOB_ID)
_FAILED = fleet_pb2.EndJob(job="demo", succeeded=False)
_UNSAVED = fleet_pb2.EndJob(job="demo", succeeded=True, unsaved=True)
_COPIES = {(1, 0, 3, False)}
# Memory for the slots of one rank, of one job at a time.
_ONE_JOB_BYTES = 3 * 4096


async def _failed(node: Node, end: fleet_pb2.EndJob = _FAILED) -> None:
    """Run a job that leaves one verified snapshot in memory, and fails, or ends otherwise."""
    async with launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            await rank.save(3, b"state after 3")
            await node.outlet.until(lambda: node.outlet.copies() == _COPIES)
        node.order(end_job=end)
        assert await control.hear() == End(succeeded=end.succeeded, reason="test")


async def _asks(node: Node, **values: object) -> object:
    """Return the answer to a launcher that says how large its job is, and goes."""
    client = await Client.connect(node, TO_LAUNCHER)
    try:
        return await client.ask(join_message(snapshot_bytes=4096, **values))
    finally:
        client.close()


@lived
async def test_what_the_next_job_goes_on_from_makes_no_way_for_others(tmp_path: Path) -> None:
    async with running(settings(tmp_path, memory_bytes_max=_ONE_JOB_BYTES)) as node:
        await _failed(node)
        node.order(keep_job=_KEEP)
        assert isinstance(await _asks(node, job="another"), Refused)
        assert node.outlet.copies() == _COPIES
        # The next job has ended in its turn.
        node.order(end_job=fleet_pb2.EndJob(job="demo", job_id=_NEXT, succeeded=False))
        assert isinstance(await _asks(node, job="another"), Joined)
        await node.outlet.until(lambda: not node.outlet.copies())


@lived
async def test_a_job_that_ended_well_and_is_in_no_storage_is_gone_on_from(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        await _failed(node, _UNSAVED)
        assert isinstance(await _asks(node, job="another"), Joined)
        assert node.outlet.copies() == _COPIES
        async with launcher(node) as control:
            node.order(
                start_generation=plan(
                    2, (node.source(node, 3),), step=3, job_id=_NEXT, lineage_id=JOB_ID
                )
            )
            assert isinstance(await control.hear(), Start)
            async with trainer(node, 0, generation=2) as rank:
                assert await rank.restore() == b"state after 3"


@lived
async def test_nothing_is_freed_for_the_job_that_goes_on_from_it(tmp_path: Path) -> None:
    async with running(settings(tmp_path, memory_bytes_max=_ONE_JOB_BYTES)) as node:
        await _failed(node)
        async with launcher(node, snapshot_bytes=4096):
            assert isinstance(await _asks(node, job="another"), Refused)
        assert node.outlet.copies() == _COPIES


@lived
async def test_another_token_does_not_keep_it(tmp_path: Path) -> None:
    async with running(settings(tmp_path, memory_bytes_max=_ONE_JOB_BYTES)) as node:
        await _failed(node)
        async with launcher(node, snapshot_bytes=4096, token="another"):
            await node.outlet.until(lambda: not node.outlet.copies())


@lived
async def test_a_job_that_begins_anew_here_keeps_nothing_of_the_one_before(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        await _failed(node)
        async with launcher(node) as control:
            node.order(start_generation=plan(2, job_id=_NEXT, lineage_id=JOB_ID))
            assert isinstance(await control.hear(), Start)
            await node.outlet.until(lambda: not node.outlet.copies())


@lived
async def test_a_job_that_goes_on_here_keeps_what_it_goes_on_from(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        await _failed(node)
        source = node.source(node, step=3)
        async with launcher(node) as control:
            node.order(start_generation=plan(2, (source,), step=3, job_id=_NEXT, lineage_id=JOB_ID))
            assert isinstance(await control.hear(), Start)
            async with trainer(node, generation=2) as rank:
                assert isinstance(await rank.ask(Restore(())), RestoredCopies)
            assert node.outlet.copies() >= _COPIES


@lived
async def test_a_refused_launcher_does_not_keep_it_for_ever(tmp_path: Path) -> None:
    async with running(settings(tmp_path, memory_bytes_max=_ONE_JOB_BYTES)) as node:
        await _failed(node)
        async with launcher(node, token="another") as control:
            node.order(refuse_launcher=fleet_pb2.RefuseLauncher(job="demo"))
            assert await control.hear() == Refused("test")
            assert isinstance(await _asks(node, job="another"), Joined)
        await node.outlet.until(lambda: not node.outlet.copies())


@lived
async def test_an_agent_that_is_started_again_keeps_it_until_it_is_forgotten(
    tmp_path: Path,
) -> None:
    kept = Kept()
    async with running(settings(tmp_path), world=Environment(stored_fds={}, keeper=kept)) as node:
        await _failed(node)
        node.order(keep_job=_KEEP)
    world = Environment(stored_fds=kept.hand_over(), keeper=kept)
    # What ended before would be given back at once.
    async with running(settings(tmp_path, memory_kept_s=0.0), world=world) as node:
        await node.outlet.until(lambda: node.outlet.copies() == _COPIES)
        node.order(forget_job=_FORGET)
        await node.outlet.until(lambda: not node.outlet.copies())


@lived
async def test_a_job_with_storage_has_its_last_step_verified_before_it_says_that_it_is_done(
    tmp_path: Path,
) -> None:
    async with (
        running(settings(tmp_path)) as node,
        launcher(node, storage=storage_in(tmp_path / "steps")) as control,
    ):
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            await rank.save(7, b"the last state")
        await control.tell(GenerationFinished(1, 0))
        await node.outlet.until(lambda: node.outlet.bodies("generation_finished"))
        assert node.outlet.reports["demo"].settled_generation == 1
        assert node.outlet.copies() == {(1, 0, 7, False)}
