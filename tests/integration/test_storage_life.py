"""A node brings the steps of a job to a folder: the real agent, its storage process, real files."""

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_agent.storage.formats.records import (
    encode_record,
    open_description,
    seal_description,
)
from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from everstep_common.launcher_messages import End, Notice, Start
from everstep_common.reports import Storage
from everstep_proto.generated import fleet_pb2
from fakes.waits import eventually
from integration.storage_world import (
    latest,
    published,
    save_and_store,
    steps,
    storage_in,
    stored,
    storing,
)
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


def _committed(node: Node, step: int) -> bool:
    return (1, 0, step, False) in node.outlet.copies()


def _points_to(folder: Path, step: int) -> bool:
    return latest(folder) == (1, 1, step)


def _judged(node: Node) -> Judgement:
    (judged,) = [
        judged for judged in node.jobs.judgements(()) if judged.key.condition == "StorageFailing"
    ]
    assert judged.key.component == "job/demo/storage"
    return judged


def _in_memory(node: Node) -> set[int]:
    return {copy.step for copy in node.outlet.reports["demo"].copies if not copy.on_disk}


def _whole(node: Node) -> list[int]:
    report = node.outlet.reports.get("demo")
    return [stored.step for stored in report.stored] if report else []


@asynccontextmanager
async def _kept_from_storage(node: Node, folder: Path) -> AsyncIterator[Client]:
    """Have a job make step 4, whose way to storage something blocks; yield its launcher."""
    async with launcher(node, storage=storage_in(folder)) as control:
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        (folder / "demo/gen-1").write_bytes(b"in the way")
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        async with trainer(node) as rank:
            await rank.save(4, b"state after 4")
            await node.outlet.until(partial(_committed, node, 4))
        node.direct(1, 4, persist_steps=[4])
        yield control


@lived
async def test_a_named_step_becomes_a_file_and_latest_points_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path)) as node, storing(node, folder) as rank:
        copy = await save_and_store(node, rank, 3, b"state after 3")
        assert (folder / "demo/gen-1/step-3/rank-0.safetensors").read_bytes()[-13:] == (
            b"state after 3"
        )
        assert latest(folder) is None
        node.direct(1, 3, persist_steps=[3], publish=published([copy], 1))
        await node.outlet.until(lambda: node.outlet.reports["demo"].stored)
        (whole,) = node.outlet.reports["demo"].stored
        assert (whole.generation, whole.step, whole.world_size) == (1, 3, 1)
        assert latest(folder) == (1, 1, 3)
        assert not list(folder.rglob("*.tmp"))


@lived
async def test_a_named_step_stays_in_memory_until_it_is_a_file(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    async with running(settings(tmp_path)) as node, storing(node, folder) as rank:
        # Nothing can be written below a file: the step waits for its storage, and is tried again.
        (folder / "demo/gen-1").write_bytes(b"in the way")
        for step in (1, 2):
            await rank.save(step, b"state %d" % step)
            await node.outlet.until(partial(_committed, node, step))
        node.direct(1, 2, persist_steps=[1])
        await eventually(lambda: node.jobs.metrics().storage_write_failures_total)
        assert (1, 0, 1, False) in node.outlet.copies()
        assert isinstance(_judged(node), Faulty)
        (folder / "demo/gen-1").unlink()
        await stored(node, 1)
        assert isinstance(_judged(node), Healthy)
        await node.outlet.until(lambda: 1 not in _in_memory(node))


@lived
async def test_only_the_steps_to_keep_stay_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path)) as node, storing(node, folder) as rank:
        for step in (1, 2, 3):
            copy = await save_and_store(node, rank, step, b"state %d" % step)
            keep = ((1, step - 1), (1, step)) if step > 1 else ()
            node.direct(1, step, persist_steps=[step], publish=published([copy], 1, keep))
            await eventually(partial(_points_to, folder, step))
        await eventually(lambda: steps(folder) == {"gen-1/step-2", "gen-1/step-3"})
        await node.outlet.until(lambda: len(node.outlet.reports["demo"].stored) == 2)


@lived
async def test_a_new_launcher_tells_where_latest_points(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path / "one")) as node, storing(node, folder) as rank:
        copy = await save_and_store(node, rank, 5, b"state after 5")
        node.direct(1, 5, persist_steps=[5], publish=published([copy], 1))
        await node.outlet.until(lambda: node.outlet.reports["demo"].stored)
    async with (
        running(settings(tmp_path / "two")) as node,
        launcher(node, storage=Storage(path=str(folder), every_steps=10, keep=3)),
    ):
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        joined = node.outlet.bodies("launcher_joined")[0].launcher_joined
        assert (joined.storage.path, joined.storage.every_steps, joined.storage.keep) == (
            str(folder),
            10,
            3,
        )
        assert (joined.latest.generation, joined.latest.step) == (1, 5)
        assert joined.stored_generation == 1
        node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
        await node.outlet.until(lambda: _whole(node) == [5])


@asynccontextmanager
async def _lacking_a_file(
    tmp_path: Path, storage_id: Callable[[str], str], unseen_s: float = 0.0
) -> AsyncIterator[tuple[Node, Path]]:
    """A step of two ranks whose second file another node has written, to a folder of this id."""
    folder = tmp_path / "steps"
    chosen = settings(tmp_path, storage_unseen_timeout_s=unseen_s)
    async with running(chosen) as node, storing(node, folder) as rank:
        copy = await save_and_store(node, rank, 3, b"state after 3")
        other = type(copy)()
        other.CopyFrom(copy)
        other.rank = 1
        wanted = published([copy, other], 1)
        own = node.outlet.reports["demo"].storage_id
        assert own == (folder / "demo/.everstep-id").read_text()
        wanted.files[1].storage_id = storage_id(own)
        node.direct(1, 3, persist_steps=[3], publish=wanted)
        yield node, folder


async def _failure(node: Node) -> str:
    await node.outlet.until(lambda: node.outlet.reports["demo"].persist_failures)
    (failure,) = node.outlet.reports["demo"].persist_failures
    assert "rank 1" in failure.reason
    return failure.reason


@lived
async def test_a_path_is_said_not_to_be_shared_where_nodes_have_written_to_two_folders(
    tmp_path: Path,
) -> None:
    async with _lacking_a_file(tmp_path, lambda own: own[::-1], unseen_s=600.0) as (node, folder):
        assert "is not shared by all nodes" in await _failure(node)
        assert latest(folder) is None


@lived
async def test_a_file_that_is_gone_from_a_shared_path_is_no_sign_that_it_is_not_shared(
    tmp_path: Path,
) -> None:
    async with _lacking_a_file(tmp_path, lambda own: own) as (node, _):
        assert "though both nodes share the folder" in await _failure(node)


@lived
async def test_where_nobody_knows_whether_a_path_is_shared_that_is_said(tmp_path: Path) -> None:
    async with _lacking_a_file(tmp_path, lambda own: "") as (node, _):
        assert "it is not known which" in await _failure(node)


@lived
async def test_a_file_that_another_node_wrote_is_waited_for_until_it_is_seen(
    tmp_path: Path,
) -> None:
    async with _lacking_a_file(tmp_path, lambda own: own, unseen_s=600.0) as (node, folder):
        await eventually(lambda: isinstance(_judged(node), Faulty))
        assert not node.outlet.reports["demo"].persist_failures
        step = folder / "demo/gen-1/step-3"
        described = open_description((step / "rank-0.json").read_bytes())
        late = seal_description(replace(described, rank=1))
        shutil.copyfile(step / "rank-0.safetensors", step / "rank-1.safetensors")
        (step / "rank-1.json").write_bytes(encode_record(late))
        await eventually(partial(_points_to, folder, 3))
        await eventually(lambda: isinstance(_judged(node), Healthy))


@lived
async def test_a_step_whose_files_were_removed_from_here_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    chosen = settings(tmp_path, storage_unseen_timeout_s=600.0)
    async with running(chosen) as node, storing(node, folder) as rank:
        copies = []
        for step in (1, 2, 3):
            copies.append(await save_and_store(node, rank, step, b"state %d" % step))
            keep = ((1, step - 1), (1, step)) if step > 1 else ()
            node.direct(1, step, persist_steps=[step], publish=published([copies[-1]], 1, keep))
            await eventually(partial(_points_to, folder, step))
        await eventually(lambda: steps(folder) == {"gen-1/step-2", "gen-1/step-3"})
        node.direct(1, 3, persist_steps=[3], publish=published([copies[0]], 1))
        await node.outlet.until(lambda: node.outlet.reports["demo"].persist_failures)
        (failure,) = node.outlet.reports["demo"].persist_failures
        assert failure.step == 1
        assert "is not seen" in failure.reason
        assert latest(folder) == (1, 1, 3)


@lived
async def test_a_job_that_ended_is_told_so_when_its_newest_step_is_stored(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path)) as node, _kept_from_storage(node, folder) as control:
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))
        notice = await control.hear()
        assert isinstance(notice, Notice)
        assert "newest step" in notice.text
        (folder / "demo/gen-1").unlink()
        while isinstance(said := await control.hear(), Notice):
            pass
        assert said == End(True, "test")
        assert (folder / "demo/gen-1/step-4/rank-0.json").exists()
        await node.outlet.until(lambda: not _in_memory(node))


@lived
async def test_what_is_forgotten_while_its_last_step_is_being_stored_goes_after_that(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path)) as node, _kept_from_storage(node, folder) as control:
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
        node.order(forget_job=fleet_pb2.ForgetJob(job="demo"))
        assert isinstance(await control.hear(), Notice)
        assert _committed(node, 4)
        (folder / "demo/gen-1").unlink()
        await node.outlet.until(lambda: not _in_memory(node))
        assert (folder / "demo/gen-1/step-4/rank-0.json").exists()


@lived
async def test_the_end_of_a_job_waits_for_its_storage_only_so_long(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with (
        running(settings(tmp_path, storage_drain_timeout_s=0.2)) as node,
        _kept_from_storage(node, folder) as control,
    ):
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))
        said = [await control.hear()]
        while not isinstance(said[-1], End):
            said.append(await control.hear())
        assert said[-2] == Notice("the newest step did not reach storage within 0.2 s")


@lived
async def test_an_agent_that_was_restarted_brings_the_step_to_storage(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    kept = Kept()
    chosen = settings(tmp_path)
    async with (
        running(chosen, world=Environment(stored_fds={}, keeper=kept)) as node,
        storing(node, folder) as rank,
    ):
        (folder / "demo/gen-1").write_bytes(b"in the way")
        await rank.save(4, b"state after 4")
        await node.outlet.until(partial(_committed, node, 4))
        node.direct(1, 4, persist_steps=[4])
        await eventually(lambda: node.jobs.metrics().storage_write_failures_total)
    (folder / "demo/gen-1").unlink()
    again = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(chosen, world=again) as node:
        await stored(node, 4)
    kept.close()


@lived
async def test_a_trainer_gets_its_state_from_shared_storage(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path / "one")) as node, storing(node, folder) as rank:
        copy = await save_and_store(node, rank, 5, b"state after 5")
        node.direct(1, 5, persist_steps=[5], publish=published([copy], 1))
        await node.outlet.until(lambda: node.outlet.reports["demo"].stored)
        (whole,) = node.outlet.reports["demo"].stored
    # Another node, later: no memory has the step any more.
    async with (
        running(settings(tmp_path / "two"), "node-2") as node,
        launcher(node, storage=storage_in(folder)) as control,
    ):
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        order = plan(2, step=5)
        order.stored.CopyFrom(whole)
        node.order(start_generation=order)
        assert isinstance(await control.hear(), Start)
        async with trainer(node, generation=2) as rank:
            assert await rank.restore() == b"state after 5"


@lived
async def test_a_job_does_not_begin_before_its_storage_has_said_what_is_there(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    (folder / "demo").write_bytes(b"in the way")
    async with (
        running(settings(tmp_path)) as node,
        launcher(node, storage=storage_in(folder)) as control,
    ):
        told = await control.hear()
        assert isinstance(told, Notice)
        assert "waiting for storage" in told.text
        assert not node.outlet.bodies("launcher_joined")
        (folder / "demo").unlink()
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))


@lived
async def test_a_node_that_waits_finds_what_others_have_stored_meanwhile(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with (
        running(settings(tmp_path / "a"), "node-1") as first,
        running(settings(tmp_path / "b"), "node-2") as spare,
        launcher(spare, storage=storage_in(folder)),
    ):
        await spare.outlet.until(lambda: spare.outlet.bodies("launcher_joined"))
        spare.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
        async with storing(first, folder) as rank:
            copy = await save_and_store(first, rank, 3, b"state after 3")
            first.direct(1, 3, persist_steps=[3], publish=published([copy], 1))
            await spare.outlet.until(lambda: _whole(spare))


@lived
async def test_where_latest_points_to_a_step_that_lost_a_file_the_one_before_it_is_told(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path / "a")) as node, storing(node, folder) as rank:
        for step in (1, 2, 3):
            copy = await save_and_store(node, rank, step, b"state %d" % step)
            keep = ((1, step - 1), (1, step))
            node.direct(1, step, persist_steps=[step], publish=published([copy], 1, keep))
            await eventually(partial(_points_to, folder, step))
    (folder / "demo/gen-1/step-3/rank-0.safetensors").unlink()
    async with (
        running(settings(tmp_path / "b")) as node,
        launcher(node, storage=storage_in(folder)),
    ):
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        joined = node.outlet.bodies("launcher_joined")[0].launcher_joined
        assert (joined.latest.generation, joined.latest.step) == (1, 2)
        node.order(hold_launcher=fleet_pb2.HoldLauncher(job="demo"))
        await node.outlet.until(lambda: node.outlet.bad)
        assert (
            "step 3 of generation 1, to which latest points, is not complete" in node.outlet.bad[0]
        )
