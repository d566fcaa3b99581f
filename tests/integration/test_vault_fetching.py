"""Where a rank's state comes from: described, fetched ahead, from the best tier that is good."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_agent.vault.job_vault import JobVault
from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_agent.vault.snapshots.manifest import layout_of
from everstep_agent.vault.transfer.client import get_manifests
from everstep_agent.vault.transfer.remote_agent import RemoteAgent
from everstep_common.launcher_messages import Start
from everstep_common.rank_messages import (
    Describe,
    DescribedPart,
    Entry,
    NothingToRestore,
    RestoreFailed,
)
from everstep_proto.generated import fleet_pb2
from integration.file_tier import Files
from integration.vault_world import (
    JOB_ID,
    KEY,
    TIMEOUT_S,
    Client,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
)


def _vault(node: Node) -> JobVault:
    job = node.jobs.known("demo")
    assert job is not None
    return job.vault


@asynccontextmanager
async def _two_ranks(folder: Path) -> AsyncIterator[Node]:
    """A node on which rank 0 has snapshotted its shard "a" at step 3, and rank 1 "b"."""
    async with running(settings(folder), "node-1") as node, launcher(node) as control:
        node.order(start_generation=plan(1, processes=2))
        await control.hear()
        for rank, name in enumerate("ab"):
            async with trainer(node, rank=rank) as one:
                await one.save(3, f"state of {name}".encode(), name)
        await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
        yield node


@asynccontextmanager
async def _restoring(
    node: Node, sources: tuple[fleet_pb2.ShardSource, ...], rank: int = 0, processes: int = 1
) -> AsyncIterator[Client]:
    """A rank of generation 2, which begins from these sources."""
    async with launcher(node) as control:
        node.order(start_generation=plan(2, sources, step=3, first_rank=rank, processes=processes))
        assert isinstance(await control.hear(), Start)
        async with trainer(node, 0, generation=2, rank=rank) as client:
            yield client


def _sources(node: Node) -> tuple[fleet_pb2.ShardSource, ...]:
    return tuple(node.source(node, 3, rank) for rank in (0, 1))


def _names(described: object) -> list[str]:
    assert isinstance(described, DescribedPart), described
    assert (described.step, described.left) == (3, 0)
    return [entry.name for entry in described.entries]


@lived
async def test_a_rank_is_told_what_is_in_its_own_copy_and_what_everyone_has(
    tmp_path: Path,
) -> None:
    async with (
        _two_ranks(tmp_path / "a") as first,
        running(settings(tmp_path / "b"), "node-2") as second,
        _restoring(second, _sources(first), rank=1) as rank,
    ):
        assert _names(await rank.ask(Describe())) == ["b"]
        assert sorted(_names(await rank.ask(Describe(everyone=True)))) == ["a", "b"]


@lived
async def test_a_rank_that_had_no_copy_is_told_everything(tmp_path: Path) -> None:
    async with (
        _two_ranks(tmp_path / "a") as first,
        running(settings(tmp_path / "b"), "node-2") as second,
        _restoring(second, _sources(first), rank=7) as rank,
    ):
        assert sorted(_names(await rank.ask(Describe()))) == ["a", "b"]


@lived
async def test_where_there_is_nothing_to_restore_nothing_is_described(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        async with trainer(node, 0) as rank:
            assert await rank.ask(Describe()) == NothingToRestore()


@lived
async def test_what_nobody_can_say_is_no_description_without_it(tmp_path: Path) -> None:
    async with _two_ranks(tmp_path / "a") as first:
        sources = _sources(first)
    async with (
        running(settings(tmp_path / "b"), "node-2") as second,
        _restoring(second, sources) as rank,
    ):
        answer = await rank.ask(Describe(everyone=True))
        assert isinstance(answer, RestoreFailed)
        assert "peer memory of node-1" in answer.reason


@lived
async def test_a_world_of_one_rank_reads_what_two_ranks_wrote(tmp_path: Path) -> None:
    async with (
        _two_ranks(tmp_path / "a") as first,
        running(settings(tmp_path / "b"), "node-2") as second,
        _restoring(second, _sources(first)) as rank,
    ):
        assert await rank.restore("b") == b"state of b"
        assert await rank.restore("a") == b"state of a"
        assert sorted(await rank.restore("a", "b")) == sorted(b"state of a" + b"state of b")


@lived
async def test_what_a_node_needs_is_there_before_its_processes_and_nothing_else(
    tmp_path: Path,
) -> None:
    async with (
        _two_ranks(tmp_path / "a") as first,
        running(settings(tmp_path / "b"), "node-2") as second,
    ):
        # No launcher, no process: the plan alone makes it fetch.
        second.order(start_generation=plan(2, _sources(first), step=3, first_rank=1))
        await second.outlet.until(lambda: second.outlet.copies())
        assert second.outlet.copies() == {(1, 1, 3, True)}
        held = _vault(second).holdings.replicas[CopyKey(1, 1, 3)]
        assert held.region.verified_hash == held.manifest.root_hash


@lived
async def test_own_memory_is_verified_before_the_processes_start(tmp_path: Path) -> None:
    async with _two_ranks(tmp_path) as node:
        sources = _sources(node)
        node.order(start_generation=plan(2, sources, step=3, processes=2))
        vault = _vault(node)
        for source in sources:
            held = vault.holdings.pin(CopyKey(1, source.rank, 3))
            assert held is not None
            async with asyncio.timeout(TIMEOUT_S):
                while not held.region.verified_hash:
                    await vault.context.threads.run(lambda: None)
            assert held.region.is_frozen()
            assert held.region.verified_hash == source.root_hash
            held.release()


@lived
async def test_what_is_fetched_ahead_is_left_off_when_its_generation_is_stopped(
    tmp_path: Path,
) -> None:
    async with _two_ranks(tmp_path / "a") as first:
        source = first.source(first, 3)
    silent = socket.create_server(("127.0.0.1", 0))
    with silent:
        source.bulk_address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with running(settings(tmp_path / "b"), "node-2") as second:
            second.order(start_generation=plan(2, (source,), step=3))
            (ahead,) = [one for one in asyncio.all_tasks() if one.get_name().startswith("ahead")]
            second.order(stop_generation=fleet_pb2.StopGeneration(job="demo", generation=2))
            await second.outlet.until(lambda: second.outlet.bodies("generation_stopped"))
            await asyncio.wait([ahead], timeout=TIMEOUT_S)
            assert ahead.cancelled()


@lived
async def test_manifests_say_what_is_in_copies_that_are_there(tmp_path: Path) -> None:
    async with _two_ranks(tmp_path) as node:
        remote = RemoteAgent(node.jobs.bulk_address, JOB_ID, KEY)
        wanted = [
            CopyRef(CopyKey(1, source.rank, 3), source.size_bytes, source.root_hash)
            for source in _sources(node)
        ]
        stranger = CopyRef(CopyKey(1, 0, 3), 10, b"another hash")
        gone = CopyRef(CopyKey(1, 5, 3), 10, b"r")
        found = await get_manifests(remote, [wanted[1], gone, stranger], TIMEOUT_S)
        assert found.keys() == {wanted[1].key}
        assert found[wanted[1].key].entries == (Entry("b", 0, 10),)


@lived
async def test_copies_are_reported_with_the_layout_of_their_shards(tmp_path: Path) -> None:
    async with _two_ranks(tmp_path) as node:
        layouts = {copy.rank: copy.layout for copy in node.outlet.reports["demo"].copies}
        assert layouts == {
            0: layout_of([Entry("a", 0, 1)]),
            1: layout_of([Entry("b", 0, 1)]),
        }


def _on_disk(node: Node, files: Files, content: bytes) -> fleet_pb2.ShardSource:
    facts = files.add(CopyKey(1, 0, 3), content)
    return fleet_pb2.ShardSource(
        node=node.name,
        bulk_address=node.jobs.bulk_address,
        generation=1,
        rank=0,
        step=3,
        root_hash=facts.root_hash,
        size_bytes=facts.size_bytes,
        layout=layout_of(facts.entries),
        on_disk=True,
    )


@lived
async def test_a_copy_on_the_own_disk_serves_where_no_memory_has_it(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        node.direct(1)
        _vault(node).files = files = Files()
        source = _on_disk(node, files, b"on disk")
        async with _restoring(node, (source,)) as rank:
            assert await rank.restore() == b"on disk"
            assert await rank.restore("w") == b"on disk"
        # What was read once is in memory from then on.
        assert len(files.loads) == 1


@lived
async def test_a_node_gives_another_one_what_it_has_on_its_disk_alone(tmp_path: Path) -> None:
    async with (
        running(settings(tmp_path / "a"), "node-1") as first,
        running(settings(tmp_path / "b"), "node-2") as second,
    ):
        first.direct(1)
        _vault(first).files = files = Files()
        source = _on_disk(first, files, b"on its disk")
        async with _restoring(second, (source,)) as rank:
            assert _names(await rank.ask(Describe())) == ["w"]
            assert await rank.restore() == b"on its disk"


@lived
async def test_a_file_that_rotted_is_reported_and_shared_storage_is_used(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        node.direct(1)
        _vault(node).files = files = Files()
        source = _on_disk(node, files, b"on disk")
        stored_key = CopyKey(1, 4, 3)
        files.add(stored_key, b"on disk")
        files.rot(CopyKey(1, 0, 3))
        ordered = plan(2, (source,), step=3)
        ordered.stored.CopyFrom(fleet_pb2.StoredStep(generation=1, step=3, world_size=1))
        async with launcher(node) as control:
            node.order(start_generation=ordered)
            await control.hear()
            async with trainer(node, 0, generation=2) as rank:
                assert await rank.restore("w") == b"on disk"
        said = "local disk is not what was verified"
        await node.outlet.until(lambda: any(said in bad for bad in node.outlet.bad))
        assert files.loads[-1] == stored_key


@lived
async def test_a_job_begins_from_shared_storage_when_the_plan_names_nothing_else(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node:
        node.direct(1)
        _vault(node).files = files = Files()
        files.add(CopyKey(1, 0, 3), b"from storage")
        ordered = plan(2, (), step=3)
        ordered.stored.CopyFrom(fleet_pb2.StoredStep(generation=1, step=3, world_size=1))
        async with launcher(node) as control:
            node.order(start_generation=ordered)
            await control.hear()
            async with trainer(node, 0, generation=2) as rank:
                assert _names(await rank.ask(Describe())) == ["w"]
                assert await rank.restore() == b"from storage"


@lived
async def test_without_any_good_source_every_reason_is_given(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        node.direct(1)
        _vault(node).files = files = Files()
        source = _on_disk(node, files, b"on disk")
        files.rot(CopyKey(1, 0, 3))
        async with _restoring(node, (source,)) as rank:
            reason = await rank.ask_restore("w")
            assert "no good copy of w" in reason
            assert "local disk: its bytes are not what was verified before" in reason
