"""Slots granted ahead: one exchange for each step, and what withdraws a grant."""

from pathlib import Path

from everstep_common.rank_messages import (
    Begin,
    Commit,
    Committed,
    CommittedAhead,
    Entry,
    Refused,
    Skip,
    Slot,
)
from integration.vault_clients import Client
from integration.vault_world import lived, running, settings, training

_CONTENT = b"state"
_ENTRIES = (Entry("w", 0, len(_CONTENT)),)


async def _commit(rank: Client, step: int, slot: int, epoch: int) -> object:
    rank.maps[slot][: len(_CONTENT)] = _CONTENT
    return await rank.ask(Commit(step, slot, epoch, _ENTRIES, ahead=True))


async def _granted(rank: Client, step: int) -> CommittedAhead:
    slot = await rank.begin(step, _CONTENT)
    answer = await _commit(rank, step, slot.slot, slot.epoch)
    assert isinstance(answer, CommittedAhead), answer
    return answer


@lived
async def test_the_answer_to_a_commit_grants_the_slot_of_the_next_step(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        first = await _granted(rank, 0)
        assert (first.step, first.first_step, first.last_step) == (0, 1, 1)
        second = await _commit(rank, 1, first.slot, first.epoch)
        assert isinstance(second, CommittedAhead)
        # The third slot is being written from the grant on, and no fourth is there.
        assert isinstance(await _commit(rank, 2, second.slot, second.epoch), Committed)
        await node.outlet.until(lambda: len(node.outlet.copies()) == 3)


@lived
async def test_a_node_tells_how_long_slots_are_taken_with_the_copies_that_come_after(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        first = await _granted(rank, 0)
        await node.outlet.until(lambda: len(node.outlet.copies()) == 1)
        assert not node.outlet.reports["demo"].HasField("turnover")
        await _commit(rank, 1, first.slot, first.epoch)
        await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
        node.direct(1, 1)
        slot = await rank.begin(2, _CONTENT)
        await _commit(rank, 2, slot.slot, slot.epoch)
        await node.outlet.until(lambda: node.outlet.reports["demo"].HasField("turnover"))
        turnover = node.outlet.reports["demo"].turnover
        assert turnover.slots == 3
        assert 0 < turnover.p50_ns <= turnover.p99_ns


@lived
async def test_a_process_of_an_older_version_is_granted_nothing_ahead(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        slot = await rank.begin(0, _CONTENT)
        answer = await rank.ask(Commit(0, slot.slot, slot.epoch, _ENTRIES))
        assert answer == Committed(0)


@lived
async def test_a_slot_is_granted_for_the_next_step_that_is_wanted_and_no_farther(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        node.direct(1, snapshot_every=1_000_000)
        slot = await rank.begin(0, _CONTENT)
        # Of a planned restart it hears when it asks, so it has to ask before such a step.
        assert isinstance(await _commit(rank, 0, slot.slot, slot.epoch), Committed)


@lived
async def test_a_planned_restart_withdraws_what_was_granted_for_a_later_step(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path, slot_wait_s=0.05)) as node, training(node) as rank:
        ahead = await _granted(rank, 0)
        node.direct(1, hold_after=0)
        refused = await _commit(rank, 1, ahead.slot, ahead.epoch)
        assert isinstance(refused, Refused)
        assert "generation ends before step 1 as planned" in refused.reason
        # Its slot is free again, and the step before which the restart comes is there.
        await node.outlet.until(lambda: (1, 0, 0, False) in node.outlet.copies())
        assert isinstance(await rank.ask(Begin(2)), Slot)


@lived
async def test_a_grant_that_was_not_used_goes_back_with_the_next_question(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        ahead = await _granted(rank, 0)
        slot = await rank.ask(Begin(7))
        assert isinstance(slot, Slot)
        assert slot.epoch > ahead.epoch
        refused = await _commit(rank, 1, ahead.slot, ahead.epoch)
        assert isinstance(refused, Refused)
        assert isinstance(await _commit(rank, 7, slot.slot, slot.epoch), CommittedAhead)


@lived
async def test_memory_that_was_granted_counts_until_its_process_is_gone(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        ahead = await _granted(rank, 0)
        await node.outlet.until(lambda: len(node.outlet.copies()) == 1)
        job = node.jobs.known("demo")
        assert job is not None
        vault = job.vault
        memory = vault.holdings.ranks[0]
        memory.retire(vault.context.region_store)
        # One slot has a copy, one is being written; the third is given back at once.
        assert len(memory.live_regions()) == 2
        assert isinstance(await _commit(rank, 1, ahead.slot, ahead.epoch), Refused)
        assert isinstance(await rank.ask(Begin(2)), Skip)
        assert len(memory.live_regions()) == 1
