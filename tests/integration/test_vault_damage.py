"""Bytes that are not what was committed are never given to anybody; the next source is used."""

import asyncio
import mmap
from dataclasses import replace
from pathlib import Path

import pytest

from everstep_agent.vault.memory.region import allocate_region
from everstep_agent.vault.snapshots.copies import CopyKey
from everstep_common.launcher_messages import Start
from everstep_common.rank_messages import Commit, Entry, Refused
from fakes.waits import eventually
from integration.vault_world import (
    Client,
    Node,
    launcher,
    plan,
    running,
    settings,
    trainer,
    training,
)


async def _restart(node: Node, control: Client, *sources: Node, step: int) -> None:
    named = tuple(source.source(source, step) for source in sources)
    node.order(start_generation=plan(2, named, step=step))
    assert isinstance(await control.hear(), Start)


async def _named(node: Node, words: str) -> None:
    """Wait until the node has reported a bad copy; who restores is answered before that."""
    await node.outlet.until(lambda: any(words in bad for bad in node.outlet.bad))


def test_a_snapshot_whose_commit_never_came_does_not_exist(tmp_path: Path) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node, launcher(node) as control:
            node.order(start_generation=plan(1))
            await control.hear()
            async with trainer(node) as rank:
                await rank.save(1, b"whole")
                await node.outlet.until(lambda: node.outlet.copies())
                before = await rank.begin(2, b"torn")
            async with trainer(node) as rank:
                late = await rank.ask(Commit(2, before.slot, before.epoch, (Entry("w", 0, 4),)))
                assert isinstance(late, Refused)
                assert "begin again" in late.reason
            assert node.outlet.copies() == {(1, 0, 1, False)}
            await _restart(node, control, node, step=1)
            async with trainer(node, 0, generation=2) as rank:
                assert await rank.restore() == b"whole"

    asyncio.run(life())


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": 1},
        {"slot": 7},
        {"step": 3},
        {"entries": ()},
        {"entries": (Entry("w", 0, 1 << 40),)},
        {"entries": (Entry("w", -4, 8),)},
        {"entries": (Entry("w", 0, 8), Entry("v", 4, 8))},
    ],
)
def test_a_commit_of_anything_but_what_was_begun_changes_nothing(
    tmp_path: Path, change: dict[str, object]
) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node, training(node) as rank:
            slot = await rank.begin(2, b"bytes")
            good = Commit(2, slot.slot, slot.epoch, (Entry("w", 0, 5),))
            assert isinstance(await rank.ask(replace(good, **change)), Refused)  # type: ignore[arg-type]
            assert not node.outlet.copies()
            assert not isinstance(await rank.ask(good), Refused)

    asyncio.run(life())


def test_bytes_that_a_rank_changes_after_the_hash_come_from_the_replica(tmp_path: Path) -> None:
    async def life() -> None:
        async with (
            running(settings(tmp_path / "a"), "node-1") as first,
            running(settings(tmp_path / "b"), "node-2") as second,
            launcher(first) as control,
        ):
            first.order(start_generation=plan(1))
            await control.hear()
            second.direct(1)
            first.direct(1, target=second)
            async with trainer(first) as rank:
                await rank.save(1, b"good bytes")
                await second.outlet.until(lambda: second.outlet.copies())
                await first.outlet.until(lambda: first.outlet.copies())
                rank.maps[0][3] ^= 1
                await _restart(first, control, first, second, step=1)
                async with trainer(first, 0, generation=2) as again:
                    assert await again.restore() == b"good bytes"
            await _named(first, "changed after it was verified")

    asyncio.run(life())


def test_without_another_source_a_changed_copy_is_refused_and_named(tmp_path: Path) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node, launcher(node) as control:
            node.order(start_generation=plan(1))
            await control.hear()
            async with trainer(node) as rank:
                await rank.save(1, b"good bytes")
                await node.outlet.until(lambda: node.outlet.copies())
                rank.maps[0][3] ^= 1
                await _restart(node, control, node, step=1)
                async with trainer(node, 0, generation=2) as again:
                    assert "step 1 of rank 0" in await again.ask_restore()
            await node.outlet.until(lambda: not node.outlet.copies())

    asyncio.run(life())


def test_a_replica_that_changed_at_rest_is_not_used(tmp_path: Path) -> None:
    async def life() -> None:
        async with (
            running(settings(tmp_path / "a"), "node-1") as first,
            running(settings(tmp_path / "b"), "node-2") as second,
            running(settings(tmp_path / "c"), "node-3") as third,
        ):
            second.direct(1)
            async with training(first) as rank:
                first.direct(1, target=second)
                await rank.save(1, b"good bytes")
                await second.outlet.until(lambda: second.outlet.copies())
                await first.outlet.until(lambda: first.outlet.copies())
                sources = (second.source(second, 1), first.source(first, 1))
                _rot(second, CopyKey(1, 0, 1))
                async with launcher(third) as control:
                    third.order(start_generation=plan(2, sources, step=1))
                    await control.hear()
                    async with trainer(third, 0, generation=2) as again:
                        assert await again.restore() == b"good bytes"
            await _named(third, "arrived changed")
            await second.outlet.until(lambda: not second.outlet.copies())
            await _named(second, "changed after it was verified")

    asyncio.run(life())


def _rot(node: Node, key: CopyKey) -> None:
    """Put other bytes where a replica was. Its own memory is sealed even against this test."""
    job = node.jobs.known("demo")
    assert job is not None
    replica = job.vault.holdings.replicas[key]
    region = allocate_region(replica.region.size_bytes, "rotten")
    with mmap.mmap(region.fd, region.size_bytes) as target:
        target[:] = replica.region.view()[:]
        target[2] ^= 1
    replica.region.release()
    job.vault.holdings.replicas[key] = replace(replica, region=region)


class _Flipping:
    """A network that flips one bit in each copy, or cuts it short."""

    def __init__(self, address: str, *, cut: bool) -> None:
        host, _, port = address.rpartition(":")
        self._to = (host, int(port))
        self._cut = cut
        self.connections = 0
        self.address = ""

    async def start(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        there, back = await asyncio.open_connection(*self._to)
        try:
            await asyncio.gather(self._pipe(reader, back), self._pipe(there, writer))
        except OSError:
            pass
        finally:
            for end in (writer, back):
                end.close()

    async def _pipe(self, source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            at = data.find(b"good bytes")
            if at >= 0 and self._cut:
                to.write(data[: at + 4])
                break
            if at >= 0:
                data = data[:at] + b"g0od bytes" + data[at + 10 :]
            to.write(data)
            await to.drain()
        to.close()


@pytest.mark.parametrize("cut", [False, True])
def test_a_replica_that_is_changed_or_cut_on_its_way_is_not_kept(
    tmp_path: Path, *, cut: bool
) -> None:
    async def life() -> None:
        async with (
            running(settings(tmp_path / "a"), "node-1") as first,
            running(settings(tmp_path / "b"), "node-2") as second,
            training(first) as rank,
        ):
            network = _Flipping(second.jobs.bulk_address, cut=cut)
            async with await network.start():
                second.direct(1)
                true_address, second.jobs.bulk_address = second.jobs.bulk_address, network.address
                first.direct(1, target=second)
                await rank.save(1, b"good bytes")
                if cut:
                    await first.outlet.until(lambda: first.outlet.copies())
                    # A bell may ring before the number is counted.
                    await eventually(
                        lambda: first.jobs.metrics().vault_replication_failures_total >= 2
                    )
                else:
                    await first.outlet.until(
                        lambda: any("twice" in bad for bad in first.outlet.bad)
                    )
                assert not second.outlet.copies()
                assert network.connections >= 2
                # The way is good again: the same step travels.
                second.jobs.bulk_address = true_address
                first.direct(1, target=second)
                await second.outlet.until(lambda: second.outlet.copies() == {(1, 0, 1, True)})

    asyncio.run(life())
