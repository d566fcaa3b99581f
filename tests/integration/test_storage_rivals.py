"""Two jobs bring their steps to one path: the terminal of the one that has lost it says so."""

import asyncio
from pathlib import Path

from everstep_agent.storage.backends.folder import FolderBackend
from everstep_agent.storage.formats.records import StepKey
from everstep_agent.storage.worker.generation_beginning import ensure_beginning, read_generation
from everstep_common.judging.judgement import Faulty
from everstep_common.launcher_messages import Notice, Start
from integration.storage_files import beginning
from integration.storage_world import latest, published, save_and_store, storage_in
from integration.vault_world import TIMEOUT_S, launcher, lived, plan, running, settings, trainer


@lived
async def test_the_terminal_of_the_loser_names_the_other_job(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    async with (
        running(settings(tmp_path)) as node,
        launcher(node, storage=storage_in(folder)) as control,
    ):
        await node.outlet.until(lambda: node.outlet.bodies("launcher_joined"))
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        backend = FolderBackend(str(folder), "demo")
        async with trainer(node, generation=1) as rank:
            copy = await save_and_store(node, rank, 1, b"state 1")
            own = read_generation(backend, 1).beginning
            assert own is not None, "written down before the step"
            assert (own.job, own.parent) == ("demo", None)
            theirs = beginning(7, StepKey(1, 1), job_id="demo-99", cluster="elsewhere")
            ensure_beginning(backend, theirs)
            node.direct(1, 1, persist_steps=[1], publish=published([copy], 1))
            async with asyncio.timeout(TIMEOUT_S):
                while True:
                    said = await control.hear()
                    if isinstance(said, Notice) and "has taken over" in said.text:
                        break
            assert "generation 7 of job demo-99 of another controller" in said.text
            assert "start it with another --persist or --job" in said.text
            (judged,) = [
                one for one in node.jobs.judgements(()) if one.key.condition == "StorageFailing"
            ]
            assert isinstance(judged, Faulty)
    assert latest(folder) is None
