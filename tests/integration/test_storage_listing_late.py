"""A look in storage that takes longer than it has at first is no reason to wait for good."""

from pathlib import Path

from everstep_common.launcher_messages import Notice
from everstep_common.reports import Storage
from integration.storage_world import storage_in
from integration.vault_world import launcher, lived, running, settings

# No interpreter has started by then and imported what it needs.
_TOO_SHORT_S = 0.03


@lived
async def test_a_launcher_is_told_of_though_each_look_begins_anew(tmp_path: Path) -> None:
    place = storage_in(tmp_path / "steps")
    chosen = settings(tmp_path / "run", storage_list_timeout_s=_TOO_SHORT_S)
    async with running(chosen) as node, launcher(node, storage=place):
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))


@lived
async def test_a_controller_that_has_forgotten_all_is_told_of_no_launcher_before_its_steps(
    tmp_path: Path,
) -> None:
    steps = tmp_path / "steps"
    async with (
        running(settings(tmp_path / "run")) as node,
        launcher(node, storage=Storage(path=str(steps))) as control,
    ):
        said = await control.hear()
        assert isinstance(said, Notice)
        assert "waiting for storage" in said.text
        node.jobs.on_connected(forgotten=True)
        assert not node.outlet.bodies("launcher_joined")
        steps.mkdir()
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        node.jobs.on_connected(forgotten=True)
        assert len(node.outlet.bodies("launcher_joined")) == 2
