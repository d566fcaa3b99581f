"""Whose steps storage has is written beside them, and told by whoever looks there later."""

import json
import os
from pathlib import Path

import pytest

from everstep_common.reports import Storage
from integration.storage_world import published, save_and_store, storing
from integration.vault_world import launcher, lived, running, settings


@pytest.mark.parametrize("known", [True, False])
@lived
async def test_a_new_launcher_tells_whose_the_stored_job_was(known: bool, tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with running(settings(tmp_path / "one")) as node, storing(node, folder) as rank:
        copy = await save_and_store(node, rank, 5, b"state after 5")
        node.direct(1, 5, persist_steps=[5], publish=published([copy], 1))
        await node.outlet.until(lambda: node.outlet.reports["demo"].stored)
    began = folder / "demo/gen-1/began.json"
    written = json.loads(began.read_text())
    assert written["uid"] == os.getuid()
    if not known:  # as a version before has written it
        del written["uid"], written["uid_hash"]
        began.write_text(json.dumps(written))
    async with (
        running(settings(tmp_path / "two")) as node,
        launcher(node, storage=Storage(path=str(folder), every_steps=10)),
    ):
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        joined = node.outlet.bodies("launcher_joined")[0].launcher_joined
        assert joined.latest.step == 5
        assert joined.HasField("stored_uid") is known
        assert joined.stored_uid == (os.getuid() if known else 0)
