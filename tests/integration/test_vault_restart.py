"""The agent is killed: its snapshots are in the holder's hands, and are there again after it."""

import asyncio
import contextlib
import os
import sqlite3
import sys
from pathlib import Path

import xxhash

from everstep_agent.jobs.job.context import Environment
from everstep_agent.jobs.state.store import open_database
from everstep_agent.vault.memory.region import allocate_region
from everstep_agent.vault.snapshots.descriptor_store import RegionStore, StoredRegion
from everstep_common.launcher_messages import Hold
from everstep_common.rank_messages import Commit, Entry, Refused
from everstep_proto.generated import fleet_pb2
from integration.vault_killed import environ, killable
from integration.vault_world import (
    JOB_ID,
    Kept,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
    training,
)

_RANK = Path(__file__).with_name("vault_rank.py")


@lived
async def test_snapshots_survive_a_killed_agent_through_the_holder(tmp_path: Path) -> None:
    async with killable(tmp_path) as (node, agent), launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        async with trainer(node) as rank:
            await rank.save(1, b"state after 1")
            await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 1, False)})
            begun = await rank.begin(2, b"half")
            node.outlet.reports.clear()
            await agent.kill()
            await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 1, False)})
            async with launcher(node, running_generation=1), trainer(node) as again:
                # The same memory, not new memory: the bytes are there.
                assert again.maps[0][:13] == b"state after 1"
                assert os.fstat(again.fds[0]).st_ino == os.fstat(rank.fds[0]).st_ino
                torn = Commit(2, begun.slot, begun.epoch, (Entry("w", 0, 4),))
                assert isinstance(await again.ask(torn), Refused)
                await again.save(2, b"state after 2")
                await node.outlet.until(lambda: (1, 0, 2, False) in node.outlet.copies())


@lived
async def test_copies_that_changed_while_the_agent_was_away_are_dropped_and_named(
    tmp_path: Path,
) -> None:
    kept = Kept()
    chosen = settings(tmp_path)
    before = Environment(stored_fds={}, keeper=kept)
    async with running(chosen, world=before) as node, training(node) as rank:
        await rank.save(1, b"one")
        await rank.save(2, b"two")
        await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
        rank.maps[0][1] ^= 1
    after = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(chosen, world=after) as node:
        await node.outlet.until(lambda: node.outlet.bad)
        assert "is not what was verified before" in node.outlet.bad[0]
        await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 2, False)})
    kept.close()


@lived
async def test_replicas_survive_a_restart_and_are_hashed_again(tmp_path: Path) -> None:
    kept = Kept()
    chosen = settings(tmp_path / "b")
    world = Environment(stored_fds={}, keeper=kept)
    async with (
        running(settings(tmp_path / "a"), "node-1") as first,
        training(first) as rank,
        running(chosen, "node-2", world) as second,
    ):
        second.direct(1)
        first.direct(1, target=second)
        await rank.save(1, b"state after 1")
        await second.outlet.until(lambda: second.outlet.copies())
        source = second.source(second, 1)
    world = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(chosen, "node-2", world) as second, launcher(second) as control:
        await second.outlet.until(lambda: second.outlet.copies() == {(1, 0, 1, True)})
        second.order(start_generation=plan(2, (source,), step=1))
        await control.hear()
        async with trainer(second, 0, generation=2) as rank:
            assert await rank.restore() == b"state after 1"
        second.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=True))
        await second.outlet.until(lambda: not second.outlet.copies())
        # The slots of generation 2 may still be in the making: they go when they are made.
        await second.until_memory_is(0)
    assert not kept.fds


@lived
async def test_after_a_restart_the_token_and_the_generation_still_count(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    async with running(chosen) as node, training(node, 3):
        pass
    async with running(chosen) as node:
        assert [(job.job, job.generation) for job in node.jobs.jobs()] == [("demo", 3)]
        node.order(start_generation=plan(3))
        async with launcher(node, running_generation=3) as control:
            # Nothing is started again; the next thing it hears is a later order.
            hold = fleet_pb2.HoldLauncher(job="demo")
            node.order(hold_launcher=hold)
            assert await control.hear() == Hold("test", spare=False)
            async with trainer(node, 0, generation=3):
                pass


@lived
async def test_the_memory_of_two_processes_of_one_rank_is_told_apart(tmp_path: Path) -> None:
    kept, chosen = Kept(), settings(tmp_path)
    world = Environment(stored_fds={}, keeper=kept)
    async with running(chosen, world=world) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        first = await asyncio.create_subprocess_exec(
            *(sys.executable, str(_RANK), str(chosen.socket_path), "1", "0", "3"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environ(),
        )
        await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 3, False)})
        first.kill()
        await first.communicate()
        # The one that takes its place has memory of its own, of the same size.
        async with trainer(node) as second:
            await second.save(4, b"state after 4")
            await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
    world = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(chosen, world=world) as node, launcher(node, running_generation=1):
        await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
        async with trainer(node) as again:
            assert again.maps[0][:13] == b"state after 4"
    assert not node.outlet.bad
    kept.close()


@lived
async def test_a_copy_that_was_torn_before_the_restart_is_found_by_the_trainers_hash(
    tmp_path: Path,
) -> None:
    kept, chosen = Kept(), settings(tmp_path)
    world = Environment(stored_fds={}, keeper=kept)
    async with running(chosen, world=world) as node, training(node) as rank:
        await rank.save(1, b"whole", digest=xxhash.xxh3_128_digest(b"whole"))
        await node.outlet.until(node.outlet.copies)
        rank.maps[0][0] ^= 1
    # As if the agent had been killed after the commit and before its own hash.
    with contextlib.closing(sqlite3.connect(tmp_path / "jobs.sqlite")) as region_store:
        region_store.execute("UPDATE memory SET body = json_set(body, '$.root_hash', '')")
        region_store.commit()
    world = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(chosen, world=world) as node:
        await node.outlet.until(lambda: node.outlet.bad)
        assert "torn while it was copied" in node.outlet.bad[0]
        assert not node.outlet.copies()
    kept.close()


@lived
async def test_a_replica_whose_row_has_no_shards_is_given_up_and_not_the_agent(
    tmp_path: Path,
) -> None:
    kept = Kept()
    async with running(settings(tmp_path), world=Environment(stored_fds={}, keeper=kept)) as node:
        node.direct(1)
    region = allocate_region(4096, "everstep-test")
    kept.store("vault-absurd", region.fd)
    region.release()
    absurd = StoredRegion(
        lineage=JOB_ID, generation=1, rank=0, slot=-1, state="verified", step=1, replica=True
    )
    with contextlib.closing(open_database(str(tmp_path / "jobs.sqlite"))) as database:
        RegionStore(database, kept).update("vault-absurd", absurd)
    world = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(settings(tmp_path), world=world) as node:
        await node.outlet.until(lambda: node.outlet.bad)
        assert kept.fds == {}
