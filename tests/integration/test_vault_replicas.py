"""Replicas: a second node holds what the first one wrote, and gives it back byte for byte."""

import asyncio
from pathlib import Path

import pytest

from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_agent.vault.transfer.client import get_copy, put_copy
from everstep_agent.vault.transfer.connection import BulkError
from everstep_agent.vault.transfer.remote_agent import RemoteAgent, TransferRefusedError
from everstep_common.launcher_messages import Start
from everstep_common.rank_messages import Begin, Skip
from integration.vault_world import (
    JOB_ID,
    KEY,
    Client,
    Node,
    launcher,
    plan,
    running,
    settings,
    trainer,
    training,
)


async def _committed_and_replicated(first: Node, second: Node, rank: Client, step: int) -> None:
    second.direct(1)
    first.direct(1, target=second)
    await rank.save(step, f"state after {step}".encode())
    await second.outlet.until(lambda: (1, 0, step, True) in second.outlet.copies())
    await first.outlet.until(lambda: (1, 0, step, False) in first.outlet.copies())


def test_a_replica_restores_a_rank_on_another_node(tmp_path: Path) -> None:
    async def life() -> None:
        async with (
            running(settings(tmp_path / "a"), "node-1") as first,
            running(settings(tmp_path / "b"), "node-2") as second,
            running(settings(tmp_path / "c"), "node-3") as third,
        ):
            async with training(first) as rank:
                await _committed_and_replicated(first, second, rank, 4)
            source = second.source(second, 4)
            async with launcher(third) as control:
                third.order(start_generation=plan(2, (source,), step=4))
                assert isinstance(await control.hear(), Start)
                async with trainer(third, 0, generation=2) as rank:
                    assert await rank.restore() == b"state after 4"
                    # What was fetched is a copy of its own, and serves the other local ranks.
                    await third.outlet.until(lambda: (1, 0, 4, True) in third.outlet.copies())
                    assert await rank.restore("w") == b"state after 4"

    asyncio.run(life())


def test_the_only_copies_of_what_a_generation_begins_from_are_replicated_before_it_trains(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        async with (
            running(settings(tmp_path / "b"), "node-2") as peer,
            running(settings(tmp_path / "c"), "node-3") as third,
            running(settings(tmp_path / "d"), "node-4") as spare,
        ):
            async with (
                running(settings(tmp_path / "a"), "node-1") as first,
                training(first) as rank,
            ):
                await _committed_and_replicated(first, peer, rank, 4)
            # node-1 is dead. The peer has the only copy, and is to replicate to node-3 now.
            begins_from = (peer.source(peer, 4),)
            for node, target in ((peer, third), (third, spare)):
                node.order(start_generation=plan(2, begins_from, step=4))
                node.direct(2, target=target)
            await third.outlet.until(lambda: (1, 0, 4, True) in third.outlet.copies())
            assert not spare.outlet.copies()
            await _restored_from(third, spare)
            third.direct(2, 5)
            await third.outlet.until(lambda: not third.outlet.copies())

    async def _restored_from(holder: Node, spare: Node) -> None:
        # The next node dies before there is a new snapshot.
        async with launcher(spare) as control:
            source = holder.source(holder, 4)
            spare.order(start_generation=plan(3, (source,), step=4))
            assert isinstance(await control.hear(), Start)
            async with trainer(spare, 0, generation=3) as rank:
                assert await rank.restore() == b"state after 4"

    asyncio.run(life())


@pytest.mark.parametrize("told", [True, False])
def test_a_spare_that_no_plan_told_takes_what_a_generation_began_from(
    tmp_path: Path, *, told: bool
) -> None:
    async def life() -> None:
        async with (
            running(settings(tmp_path / "b"), "node-2") as peer,
            running(settings(tmp_path / "c"), "node-3") as keeper,
            launcher(peer) as control,
        ):
            async with (
                running(settings(tmp_path / "a"), "node-1") as first,
                training(first) as rank,
            ):
                await _committed_and_replicated(first, peer, rank, 4)
            began_from = (peer.source(peer, 4),)
            keeper.direct(2, sources=began_from if told else ())
            peer.order(start_generation=plan(2, began_from, step=4))
            peer.direct(2, target=keeper)
            assert isinstance(await control.hear(), Start)
            if told:
                await keeper.outlet.until(lambda: (1, 0, 4, True) in keeper.outlet.copies())
            async with trainer(peer, generation=2) as rank:
                await rank.save(5, b"state after 5")
                # Untold, it refuses step 4; the steps of the generation do not wait for that.
                await keeper.outlet.until(lambda: (2, 0, 5, True) in keeper.outlet.copies())
                assert ((1, 0, 4, True) in keeper.outlet.copies()) is told

    asyncio.run(life())


def test_the_own_copy_of_a_rank_whose_replica_is_lost_travels_again(tmp_path: Path) -> None:
    async def life() -> None:
        async with (
            running(settings(tmp_path / "a"), "node-1") as first,
            running(settings(tmp_path / "c"), "node-3") as third,
        ):
            async with (
                training(first) as rank,
                running(settings(tmp_path / "b"), "node-2") as second,
            ):
                await _committed_and_replicated(first, second, rank, 4)
            begins_from = (first.source(first, 4),)
            first.order(start_generation=plan(2, begins_from, step=4))
            first.direct(2, target=third)
            # It is offered before node-3 knows the plan, too: refused then, and offered again.
            third.direct(2)
            third.order(start_generation=plan(2, begins_from, step=4))
            await third.outlet.until(lambda: (1, 0, 4, True) in third.outlet.copies())

    asyncio.run(life())


def test_a_keeper_that_has_lost_its_memory_is_sent_again_what_is_still_needed(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        async with running(settings(tmp_path / "a"), "node-1") as first, training(first) as rank:
            async with running(settings(tmp_path / "b"), "node-2") as second:
                await _committed_and_replicated(first, second, rank, 4)
                address = second.jobs.bulk_address
            # Its agent comes back under the same address, as with the port that is shipped.
            port = int(address.rpartition(":")[2])
            async with running(settings(tmp_path / "c", bulk_port=port), "node-2") as again:
                assert again.jobs.bulk_address == address
                again.direct(1)
                await again.outlet.until(lambda: (1, 0, 4, True) in again.outlet.copies())

    asyncio.run(life())


def test_every_committed_step_travels_and_a_slot_waits_until_it_is_recoverable(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        async with (
            running(settings(tmp_path / "a", slot_wait_s=0.05), "node-1") as first,
            running(settings(tmp_path / "b"), "node-2") as second,
            training(first) as rank,
        ):
            for step in range(3):
                await _committed_and_replicated(first, second, rank, step)
            # Nothing is recoverable by the controller's word: all three slots are needed.
            skipped = await rank.ask(Begin(3))
            assert isinstance(skipped, Skip)
            assert "no slot was free" in skipped.reason
            first.direct(1, 1, target=second)
            second.direct(1, 1)
            await second.outlet.until(
                lambda: second.outlet.copies() == {(1, 0, 1, True), (1, 0, 2, True)}
            )
            await _committed_again(first, second, rank)

    async def _committed_again(first: Node, second: Node, rank: Client) -> None:
        # Step 3 was left out, and others may have freed it since.
        again = await rank.ask(Begin(3))
        assert isinstance(again, Skip)
        await rank.save(4, b"state after 4")
        await first.outlet.until(
            lambda: first.outlet.copies() == {(1, 0, step, False) for step in (1, 2, 4)}
        )
        await second.outlet.until(lambda: (1, 0, 4, True) in second.outlet.copies())

    asyncio.run(life())


def test_a_dead_step_gives_its_slot_back(tmp_path: Path) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node, training(node) as rank:
            for step in range(3):
                await rank.save(step, b"x")
            await node.outlet.until(lambda: len(node.outlet.copies()) == 3)
            node.direct(1, None, dead=(1,))
            await rank.save(3, b"y")
            await node.outlet.until(
                lambda: node.outlet.copies() == {(1, 0, step, False) for step in (0, 2, 3)}
            )

    asyncio.run(life())


def test_the_copies_of_an_older_generation_stay_until_the_new_one_has_a_recoverable_step(
    tmp_path: Path,
) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node, launcher(node) as control:
            node.order(start_generation=plan(1))
            await control.hear()
            async with trainer(node) as rank:
                await rank.save(7, b"seven")
            await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 7, False)})
            node.order(start_generation=plan(2, (node.source(node, 7),), step=7))
            await control.hear()
            async with trainer(node, generation=2) as rank:
                assert await rank.restore() == b"seven"
                await rank.save(8, b"eight")
                await node.outlet.until(
                    lambda: node.outlet.copies() == {(1, 0, 7, False), (2, 0, 8, False)}
                )
                node.direct(1, 7)  # of the generation before: ignored
                node.direct(2)
                assert (1, 0, 7, False) in node.outlet.copies()
                node.direct(2, 8)
                await node.outlet.until(lambda: node.outlet.copies() == {(2, 0, 8, False)})

    asyncio.run(life())


def test_a_replica_of_an_older_generation_is_refused(tmp_path: Path) -> None:
    async def life() -> None:
        async with (
            running(settings(tmp_path / "a"), "node-1") as first,
            running(settings(tmp_path / "b"), "node-2") as second,
        ):
            async with training(first) as rank:
                await _committed_and_replicated(first, second, rank, 1)
            vault = first.jobs.known("demo")
            assert vault is not None
            held = vault.vault.holdings.pin(CopyKey(1, 0, 1))
            assert held is not None
            second.direct(2)
            remote = RemoteAgent(second.jobs.bulk_address, JOB_ID, KEY)
            with pytest.raises(TransferRefusedError, match="generation 1 is over"):
                await put_copy(remote, held.manifest, held.region, vault.vault.context.outgoing)
            held.release()

    asyncio.run(life())


def test_nobody_stores_or_fetches_without_the_transfer_key(tmp_path: Path) -> None:
    async def life() -> None:
        async with running(settings(tmp_path)) as node, training(node) as rank:
            await rank.save(1, b"secret state")
            await node.outlet.until(lambda: node.outlet.copies())
            job = node.jobs.known("demo")
            assert job is not None
            vault = job.vault
            facts = vault.holdings.manifests()[0][0]
            wanted = CopyRef(facts.key, facts.size_bytes, facts.root_hash)
            for name, key in ((JOB_ID, b"w" * 32), ("other", KEY)):
                remote = RemoteAgent(node.jobs.bulk_address, name, key)
                with pytest.raises(BulkError, match="transfer key"):
                    await get_copy(remote, wanted, vault.receive_buffers, vault.context.incoming)

    asyncio.run(life())
