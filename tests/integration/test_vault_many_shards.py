"""States of very many shards are committed, replicated, described and restored."""

from pathlib import Path

from everstep_agent.jobs.job.context import Environment
from everstep_common.rank_messages import (
    Begin,
    Commit,
    Committed,
    Describe,
    DescribedPart,
    Entry,
    Refused,
    Restore,
    RestoredCopies,
    Slot,
)
from integration.vault_world import (
    Client,
    Kept,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
    training,
)

# With names as long as this, more than one could say in 16 MiB, and as much work as 60,000 shards.
SHARDS = 60_000
PREFIX = "model.layers." * 20
SHARD_BYTES = 64


def manifest(shards: int) -> tuple[Entry, ...]:
    return tuple(Entry(f"{PREFIX}{i}", i * SHARD_BYTES, SHARD_BYTES, "BF16") for i in range(shards))


async def commit(rank: Client, step: int, entries: tuple[Entry, ...], *, same: bool) -> object:
    slot = await rank.ask(Begin(step))
    assert isinstance(slot, Slot), slot
    told = () if same else entries
    return await rank.ask(Commit(step, slot.slot, slot.epoch, told, same))


@lived
async def test_a_manifest_of_20_mebibytes_is_committed_replicated_described_and_restored(
    tmp_path: Path,
) -> None:
    entries = manifest(SHARDS)
    size = SHARDS * SHARD_BYTES
    async with (
        running(settings(tmp_path / "1")) as node,
        running(settings(tmp_path / "2"), "node-2") as peer,
        launcher(node),
        launcher(peer),
    ):
        node.order(start_generation=plan(1))
        peer.order(start_generation=plan(1, processes=0))
        peer.direct(1)
        node.direct(1, target=peer)
        async with trainer(node, size) as rank:
            assert await commit(rank, 1, entries, same=False) == Committed(1)
        await peer.outlet.until(lambda: len(peer.outlet.copies()) == 1)
        source = peer.source(peer, 1)
        peer.order(start_generation=plan(2, (source,), step=1))
        async with trainer(peer, 0, generation=2) as rank:
            assert await _told_in_parts(rank, begin=0) == sorted(e.name for e in entries)
            restored = await rank.ask(Restore(tuple(entry.name for entry in entries)))
            assert isinstance(restored, RestoredCopies)
            assert restored.copies[0].entries == entries


@lived
async def test_a_manifest_that_did_not_change_is_not_sent_again(tmp_path: Path) -> None:
    entries = manifest(1000)
    kept, chosen = Kept(), settings(tmp_path)
    world = Environment(stored_fds={}, keeper=kept)
    async with running(chosen, world=world) as node, launcher(node):
        node.order(start_generation=plan(1))
        async with trainer(node, 1000 * SHARD_BYTES) as rank:
            assert await commit(rank, 1, entries, same=False) == Committed(1)
            assert await commit(rank, 2, entries, same=True) == Committed(2)
            await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
    world = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(chosen, world=world) as node, launcher(node, running_generation=1):
        await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
        node.order(start_generation=plan(2, (node.source(node, 2),), step=2))
        async with trainer(node, 0, generation=2) as rank:
            described = await rank.ask(Describe())
            assert isinstance(described, DescribedPart)
            assert described.entries == tuple(sorted(entries, key=lambda entry: entry.name))
    kept.close()


@lived
async def test_who_was_never_committed_cannot_be_committed_again(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        assert isinstance(await commit(rank, 1, (), same=True), Refused)
        assert await commit(rank, 1, (Entry("w", 0, 8),), same=False) == Committed(1)


@lived
async def test_a_list_that_is_long_is_told_in_parts_in_the_order_of_the_names(
    tmp_path: Path,
) -> None:
    entries = manifest(SHARDS)[::-1]
    async with running(settings(tmp_path)) as node, launcher(node):
        node.order(start_generation=plan(1))
        async with trainer(node, SHARDS * SHARD_BYTES) as rank:
            assert await commit(rank, 1, entries, same=False) == Committed(1)
        await node.outlet.until(lambda: len(node.outlet.copies()) == 1)
        node.order(start_generation=plan(2, (node.source(node, 1),), step=1))
        async with trainer(node, 0, generation=2) as rank:
            names = await _told_in_parts(rank, begin=0)
            assert names == sorted(entry.name for entry in entries)
        async with trainer(node, 0, generation=2) as rank:
            assert await _told_in_parts(rank, begin=9000) == names[9000:]


async def _told_in_parts(rank: Client, begin: int) -> list[str]:
    names: list[str] = []
    while True:
        part = await rank.ask(Describe(everyone=True, begin=begin + len(names)))
        assert isinstance(part, DescribedPart), part
        assert part.step == 1
        names += [entry.name for entry in part.entries]
        if not part.left:
            return names
