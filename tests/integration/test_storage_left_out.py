"""The data that a job leaves out is written beside its steps, and told to whoever goes on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey, key_of
from everstep_agent.storage.worker import rank_files
from everstep_agent.storage.worker.step_listing import list_steps
from everstep_agent.storage.worker.step_publication import move_latest
from everstep_common.rank_messages import DataRange
from everstep_common.reports import Storage
from everstep_proto.generated import fleet_pb2
from integration.storage_files import content, order, publication
from integration.storage_world import published, save_and_store, storing
from integration.vault_world import launcher, lived, plan, running, settings

_KEY = StepKey(1, 5)
_RANGES = (DataRange(3, 4), DataRange(9, 9))


def _stored(folder: Path, skipped: tuple[DataRange, ...]) -> FolderBackend:
    backend = FolderBackend(str(folder), "demo")
    rank_files.write_copy(backend, order(str(folder), 1, 5), memoryview(content(5)), lambda _: None)
    move_latest(backend, replace(publication(str(folder), 1, _KEY), skipped=skipped))
    return backend


def _manifest(folder: Path) -> Path:
    return folder / "demo/gen-1/step-5/manifest.json"


def test_the_manifest_and_latest_say_it(tmp_path: Path) -> None:
    seen = list_steps(_stored(tmp_path, _RANGES), _KEY)
    assert [stored.skipped for stored in seen.steps] == [_RANGES]
    assert seen.latest
    assert seen.manifest
    assert seen.latest.skipped == seen.manifest.skipped == _RANGES


def test_a_step_without_any_is_as_older_agents_write_and_read_it(tmp_path: Path) -> None:
    backend = _stored(tmp_path, ())
    for path in (_manifest(tmp_path), tmp_path / "demo/latest"):
        assert "skipped" not in json.loads(path.read_text())
    seen = list_steps(backend, None)
    assert [(key_of(stored), stored.skipped) for stored in seen.steps] == [(_KEY, ())]
    assert seen.latest
    assert seen.latest.target == _KEY


@pytest.mark.parametrize(
    "ranges",
    [
        [{"first": 4, "last": 3}],
        [{"first": 3, "last": 4}, {"first": 4, "last": 9}],
        [{"first": -1, "last": 3}],
        [{"first": 0, "last": 2**62}],
        [{"first": 3 * n, "last": 3 * n} for n in range(1001)],
    ],
)
def test_ranges_that_nobody_wrote_are_no_manifest(
    tmp_path: Path, ranges: list[dict[str, int]]
) -> None:
    backend = _stored(tmp_path, _RANGES)
    body = json.loads(_manifest(tmp_path).read_text()) | {"skipped": ranges}
    _manifest(tmp_path).write_text(json.dumps(body))
    assert list_steps(backend, None).steps == ()


@lived
async def test_a_new_launcher_tells_what_the_stored_job_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path / "one")) as node, storing(node, folder) as rank:
        copy = await save_and_store(node, rank, 5, b"state after 5")
        order = published([copy], 1, skipped=((3, 4), (9, 9)))
        node.direct(1, 5, persist_steps=[5], publish=order)
        await node.outlet.until(lambda: node.outlet.reports["demo"].stored)
    async with (
        running(settings(tmp_path / "two")) as node,
        launcher(node, storage=Storage(path=str(folder), every_steps=10)),
    ):
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        joined = node.outlet.bodies("launcher_joined")[0].launcher_joined
        assert [(one.first, one.last) for one in joined.latest.skipped] == [(3, 4), (9, 9)]
        assert not joined.skipped


@lived
async def test_a_forgetful_controller_is_told_what_the_running_generation_leaves_out(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        start = plan(3)
        start.skipped.append(fleet_pb2.DataRange(first=3, last=4))
        node.order(start_generation=start)
        await control.hear()
        node.jobs.on_connected(forgotten=True)
        await node.outlet.until(lambda: len(node.outlet.bodies("launcher_joined")) == 2)
        again = node.outlet.bodies("launcher_joined")[1].launcher_joined
        assert again.running_generation == 3
        assert [(one.first, one.last) for one in again.skipped] == [(3, 4)]
