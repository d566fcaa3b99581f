"""A storage folder that is not there, or goes away: never made anew where a mount should be."""

from functools import partial
from pathlib import Path

from everstep_common.judging.judgement import Faulty, Healthy, Judgement
from everstep_common.launcher_messages import Notice
from everstep_common.reports import Storage
from fakes.waits import eventually
from integration.storage_world import save_and_store, stored, storing
from integration.vault_world import Node, launcher, lived, running, settings


def _committed(node: Node, step: int) -> bool:
    return (1, 0, step, False) in node.outlet.copies()


def _judged(node: Node) -> Judgement:
    judged = [one for one in node.jobs.judgements(()) if one.key.condition == "StorageFailing"]
    return judged[0]


@lived
async def test_a_folder_that_is_not_mounted_is_not_made_and_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "mount/steps"
    async with (
        running(settings(tmp_path)) as node,
        launcher(node, storage=Storage(path=str(folder))) as control,
    ):
        told = await control.hear()
        assert isinstance(told, Notice)
        assert "is not there for this node's agent: mount it there" in told.text
        assert not folder.parent.exists()
        folder.mkdir(parents=True)
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))


@lived
async def test_a_folder_that_goes_away_is_a_finding_until_it_is_back(tmp_path: Path) -> None:
    folder, away = tmp_path / "steps", tmp_path / "unmounted"
    async with running(settings(tmp_path)) as node, storing(node, folder) as rank:
        await save_and_store(node, rank, 1, b"state 1")
        folder.rename(away)
        await rank.save(2, b"state 2")
        await node.outlet.until(partial(_committed, node, 2))
        node.direct(1, 2, persist_steps=[2])
        await eventually(lambda: node.jobs.metrics().storage_write_failures_total)
        judged = _judged(node)
        assert isinstance(judged, Faulty)
        assert "mount it there" in str(judged.finding.evidence)
        assert not folder.exists()
        away.rename(folder)
        await stored(node, 2)
        assert isinstance(_judged(node), Healthy)
