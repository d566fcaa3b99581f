"""An agent says that no snapshot of a job was ever made here only where it knows that."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_agent.jobs.state.store import open_database
from everstep_common.reports import RanksWithoutSnapshot, Storage
from integration.vault_world import (
    TIMEOUT_S,
    Kept,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)


def _told(node: Node) -> RanksWithoutSnapshot | None:
    (job,) = node.jobs.jobs()
    return job.without_snapshot


@lived
async def test_until_the_first_commit_it_says_so_and_never_again_not_even_after_a_restart(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path)
    async with running(chosen) as node, launcher(node) as control:
        assert _told(node) is None  # it has not begun
        node.order(start_generation=plan(1, processes=2, node_count=2))
        await control.hear()
        assert _told(node) == RanksWithoutSnapshot(1, 2, 4)
    # The memory of snapshots is not kept over this restart; what the agent knows of the job is.
    async with running(chosen, world=Environment(stored_fds={}, keeper=Kept())) as node:
        assert _told(node) == RanksWithoutSnapshot(1, 2, 4)
        async with launcher(node, running_generation=1), trainer(node) as rank:
            assert _told(node) == RanksWithoutSnapshot(1, 2, 4)  # it may never save anything
            await rank.save(1, b"state")
            assert _told(node) is None
    async with running(chosen, world=Environment(stored_fds={}, keeper=Kept())) as node:
        assert node.outlet.copies() == set()
        assert _told(node) is None


@lived
async def test_of_a_generation_that_restores_a_state_and_of_those_after_it_it_does_not(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1, step=7))
        await control.hear()
        assert _told(node) is None
        node.order(start_generation=plan(2))
        await control.hear()
        assert _told(node) is None


@lived
async def test_it_says_whether_a_controller_has_ordered_the_stop(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        node.order(stop_generation={"job": "demo", "generation": 1, "grace_ns": 0})
        await control.hear()
        assert _told(node) == RanksWithoutSnapshot(1, 1, 1, stop_ordered=True)


@lived
async def test_of_a_job_with_storage_it_does_not(tmp_path: Path) -> None:
    stored = Storage(str(tmp_path / "steps"), every_steps=5)
    chosen = settings(tmp_path / "agent")
    async with running(chosen) as node, launcher(node, storage=stored) as control:
        node.order(start_generation=plan(1))
        async with asyncio.timeout(TIMEOUT_S):
            await control.hear()
        assert _told(node) is None


@lived
async def test_of_what_an_agent_of_a_version_before_wrote_down_it_does_not(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    async with running(chosen) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
    with closing(open_database(str(tmp_path / "jobs.sqlite"))) as database:
        ((key, body),) = database.execute("SELECT key, body FROM job").fetchall()
        known = json.loads(body)
        assert known.pop("snapshotted") is False
        database.execute("UPDATE job SET body = ? WHERE key = ?", (json.dumps(known), key))
    async with running(chosen, world=Environment(stored_fds={}, keeper=Kept())) as node:
        assert _told(node) is None
