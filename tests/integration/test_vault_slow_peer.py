"""A peer to which replicas only trickle: training goes on, it shows, and it catches up."""

from pathlib import Path

from everstep_common.trainer_messages import Begin, Commit, Committed, Entry, Slot
from integration.bulk_relay import relay
from integration.vault_world import TIMEOUT_S, Client, lived, running, settings, training

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
        network.pace_s = 0.5
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
