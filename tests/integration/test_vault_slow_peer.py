"""A peer to which replicas only trickle: training goes on, it shows, and it catches up."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from everstep_common.rank_messages import Begin, Commit, Committed, Entry, Slot
from integration.bulk_relay import relay
from integration.vault_world import (
    TIMEOUT_S,
    Client,
    Node,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
    training,
)

_SIZE = 4 << 20


async def _steps(rank: Client, steps: range, wait_s: float) -> int:
    """Train; return how many steps were not saved. No step waits for the peer for long."""
    skipped = 0
    for step in steps:
        answer = await rank.ask(Begin(step, wait_s=wait_s))
        if not isinstance(answer, Slot):
            skipped += 1
            continue
        rank.maps[answer.slot][:_SIZE] = bytes([step]) * _SIZE
        entry = Entry("w", 0, _SIZE)
        assert await rank.ask(Commit(step, answer.slot, answer.epoch, (entry,))) == Committed(step)
    return skipped


@lived
async def test_a_peer_that_trickles_costs_snapshots_and_no_training(tmp_path: Path) -> None:
    async with (
        running(settings(tmp_path / "a"), "node-1") as first,
        running(settings(tmp_path / "b"), "node-2") as second,
        relay(second.jobs.bulk_address) as network,
        training(first) as rank,
    ):
        await rank.reserve(_SIZE)
        # No copy comes whole before the steps are done, on however busy a machine.
        network.pace_s = 3.0
        second.direct(1)
        true_address, second.jobs.bulk_address = second.jobs.bulk_address, network.address
        first.direct(1, target=second)
        assert await _steps(rank, range(1, 13), 0.05) > 0
        assert not second.outlet.copies()
        # Whatever is kept meanwhile are whole steps of this node.
        assert all(not replica for _, _, _, replica in first.outlet.copies())
        network.pace_s = 0.0
        newest = max(step for _, _, step, _ in first.outlet.copies())
        await second.outlet.until(lambda: (1, 0, newest, True) in second.outlet.copies())
        first.direct(1, newest, target=second)
        assert await _steps(rank, range(20, 21), TIMEOUT_S) == 0
        second.jobs.bulk_address = true_address


@lived
async def test_a_recovery_turns_from_a_peer_that_trickles_to_the_next_one(tmp_path: Path) -> None:
    size = 32 << 20
    async with (
        _two_holders(tmp_path, size) as (first, second),
        relay(first.jobs.bulk_address) as network,
        _third(tmp_path) as third,
    ):
        # Never without a byte for long, and done after minutes.
        network.pace_s = 0.4
        slow = first.source(first, 1)
        slow.bulk_address = network.address
        third.order(start_generation=plan(2, (slow, second.source(second, 1)), step=1))
        async with trainer(third, 0, generation=2) as rank:
            assert await rank.restore("w") == bytes([1]) * size
        assert network.connections > 0


@lived
async def test_a_recovery_stays_with_a_peer_that_trickles_when_nobody_else_has_it(
    tmp_path: Path,
) -> None:
    async with (
        _two_holders(tmp_path, _SIZE) as (first, _),
        relay(first.jobs.bulk_address) as network,
        _third(tmp_path) as third,
    ):
        network.pace_s = 0.2
        slow = first.source(first, 1)
        slow.bulk_address = network.address
        third.order(start_generation=plan(2, (slow,), step=1))
        async with trainer(third, 0, generation=2) as rank:
            assert await rank.restore("w") == bytes([1]) * _SIZE
        assert network.connections > 1


@asynccontextmanager
async def _third(folder: Path) -> AsyncIterator[Node]:
    """A node with no copy, for which every trickle is too slow."""
    chosen = settings(folder / "c", transfer_timeout_s=2.0, restore_bytes_per_s_min=64 << 20)
    async with running(chosen, "node-3") as third, launcher(third):
        yield third


@asynccontextmanager
async def _two_holders(folder: Path, size: int) -> AsyncIterator[tuple[Node, Node]]:
    """Nodes that both have the same copy."""
    async with (
        running(settings(folder / "a"), "node-1") as first,
        running(settings(folder / "b"), "node-2") as second,
        training(first) as rank,
    ):
        await rank.reserve(size)
        second.direct(1)
        first.direct(1, target=second)
        await rank.save(1, bytes([1]) * size)
        await second.outlet.until(lambda: (1, 0, 1, True) in second.outlet.copies())
        yield first, second
