"""Slots as a trainer meets them: how many, for which steps, for how long it waits, how they end."""

from pathlib import Path

import pytest
import xxhash

from everstep_agent.jobs.job.context import Environment
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Faulty, Healthy
from everstep_common.launcher_messages import Notice, Start
from everstep_common.rank_messages import (
    Begin,
    Commit,
    Committed,
    Entry,
    Progress,
    Skip,
    Slot,
    Unplanned,
)
from everstep_common.reports import Storage
from everstep_proto.generated import fleet_pb2
from integration.vault_world import (
    Kept,
    launcher,
    lived,
    plan,
    running,
    settings,
    trainer,
    training,
)


@lived
async def test_with_storage_a_rank_has_a_slot_more_also_after_a_restart(tmp_path: Path) -> None:
    kept, chosen = Kept(), settings(tmp_path)
    stored = Storage(path=str(tmp_path / "stored"))
    world = Environment(stored_fds={}, keeper=kept)
    async with running(chosen, world=world) as node, launcher(node, storage=stored):
        node.order(start_generation=plan(1))
        async with trainer(node) as rank:
            assert len(rank.maps) == chosen.slots_per_rank + 1
            for step in range(4):
                await rank.save(step, f"state after {step}".encode())
            await node.outlet.until(lambda: len(node.outlet.copies()) == 4)
    world = Environment(stored_fds=kept.hand_over(), keeper=kept)
    async with running(chosen, world=world) as node, launcher(node, running_generation=1):
        await node.outlet.until(lambda: len(node.outlet.copies()) == 4)
        async with trainer(node) as again:
            assert [bytes(slot[:13]) for slot in again.maps] == [
                f"state after {step}".encode() for step in range(4)
            ]
    kept.close()


@lived
async def test_only_the_steps_that_the_controller_wants_get_a_slot(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        node.direct(1, snapshot_every=4, snapshot_from=6)
        await rank.save(5, b"the rule before holds until step 6")
        # It may be told to ask again before the step that is wanted, and never after it.
        assert await rank.ask(Begin(6)) in (Unplanned(7), Unplanned(8))
        assert await rank.ask(Begin(7)) == Unplanned(8)
        await rank.save(8, b"wanted")
        assert node.jobs.metrics().vault_snapshots_skipped_total == 0


@lived
async def test_the_terminal_is_told_once_of_each_change_of_the_cadence(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        assert isinstance(await control.hear(), Start)
        node.direct(1, snapshot_every=1, cadence_reason="nothing was decided")
        node.direct(1, snapshot_every=4, snapshot_from=8, cadence_reason="four cost less")
        node.direct(1, 7, snapshot_every=4, snapshot_from=8, cadence_reason="four cost less")
        node.direct(1, 8, snapshot_every=1, snapshot_from=20, cadence_reason="it failed")
        assert await control.hear() == Notice("four cost less")
        assert await control.hear() == Notice("it failed")
        node.order(start_generation=plan(2))
        assert isinstance(await control.hear(), Start)


@lived
async def test_the_cadence_is_still_known_after_a_restart(tmp_path: Path) -> None:
    chosen = settings(tmp_path)
    async with running(chosen) as node, training(node):
        node.direct(1, snapshot_every=4)
        node.direct(1, snapshot_every=8, snapshot_from=100)
    async with running(chosen) as node, launcher(node, running_generation=1), trainer(node) as rank:
        assert await rank.ask(Begin(3)) == Unplanned(4)
        assert await rank.ask(Begin(103)) == Unplanned(104)


@pytest.mark.parametrize("wait_s", [0.0, 0.05, -1.0])
@lived
async def test_a_trainer_waits_for_a_slot_as_long_as_it_wants(
    tmp_path: Path, wait_s: float
) -> None:
    # The usual wait is 20 s: a test that ends before shows that it was not taken.
    chosen = settings(tmp_path, slot_wait_s=1e6, slot_wait_max_s=2e6)
    async with running(chosen) as node, training(node) as rank:
        for step in range(3):
            await rank.save(step, b"held")
        assert isinstance(await rank.ask(Begin(3, wait_s)), Skip)
        assert node.jobs.metrics().vault_snapshots_skipped_total == 1


@lived
async def test_training_does_not_wait_for_a_slot_while_the_controller_is_away(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path, slot_wait_s=1e6, slot_wait_max_s=2e6)
    world = Environment(stored_fds={}, controller_away_s=lambda: 0.1)
    # The other member says nothing, so that nothing is freed.
    async with running(chosen, world=world) as node, training(node, node_count=2) as rank:
        for step in range(3):
            await rank.save(step, b"held")
        assert isinstance(await rank.ask(Begin(3)), Skip)


@lived
async def test_a_step_that_a_rank_saves_twice_makes_no_step_be_left_out(tmp_path: Path) -> None:
    world = Environment(stored_fds={}, controller_away_s=lambda: 0.1)
    async with (
        running(settings(tmp_path), world=world) as node,
        training(node, node_count=2) as rank,
    ):
        await rank.save(0, b"saved")
        answer = await rank.ask(Begin(0))
        assert isinstance(answer, Skip)
        assert answer.reason == "step 0 is in the vault already"
        # The one after it is wanted all the same.
        assert isinstance(await rank.ask(Begin(1)), Slot)


@lived
async def test_a_rank_that_waits_for_a_slot_goes_on_when_the_controller_goes_away(
    tmp_path: Path,
) -> None:
    away_s = [0.0]
    # Only the end of the stream can end the wait.
    chosen = settings(tmp_path, slot_wait_s=1e6, slot_wait_max_s=2e6)
    world = Environment(stored_fds={}, controller_away_s=lambda: away_s[0])
    async with running(chosen, world=world) as node, training(node, node_count=2) as rank:
        for step in range(3):
            await rank.save(step, b"held")
        await node.outlet.until(lambda: len(node.outlet.copies()) == 3)
        await rank.tell(Begin(3))
        # What the rank tells after its question is heard while that waits.
        await rank.tell(Progress(2, 1, 0))
        await node.outlet.until(lambda: bool(node.outlet.bodies("steps_completed")))
        away_s[0] = 0.1
        node.jobs.on_away()
        answer = await rank.hear()
        assert isinstance(answer, Skip)
        assert "while the controller is away" in answer.reason


@lived
async def test_a_rank_that_waits_for_a_slot_goes_on_when_the_agent_of_another_member_is_away(
    tmp_path: Path,
) -> None:
    chosen = settings(tmp_path, slot_wait_s=1e6, slot_wait_max_s=2e6)
    async with running(chosen) as node, training(node) as rank:
        for step in range(3):
            await rank.save(step, b"held")
        await node.outlet.until(lambda: len(node.outlet.copies()) == 3)
        await rank.tell(Begin(3))
        await rank.tell(Progress(2, 1, 0))
        await node.outlet.until(lambda: bool(node.outlet.bodies("steps_completed")))
        node.direct(1, member_away=True)
        answer = await rank.hear()
        assert isinstance(answer, Skip)
        assert "while another member's agent is away" in answer.reason
        # While it is away nobody waits; once it is back, and what was held is free, all is saved.
        assert isinstance(await rank.ask(Begin(4)), Skip)
        node.direct(1, 2)
        await rank.save(5, b"saved again")


@lived
async def test_a_wait_that_failed_is_not_repeated_for_slots_of_steps_that_others_have_passed(
    tmp_path: Path,
) -> None:
    # Ranks out of phase fill each slot that gets free so with another such step, for ever.
    chosen = settings(tmp_path, slot_wait_s=1e6, slot_wait_max_s=2e6)
    async with running(chosen) as node, training(node) as rank:
        for step in range(3):
            await rank.save(step, b"held")
        await node.outlet.until(lambda: len(node.outlet.copies()) == 3)
        node.direct(1, 0)
        assert isinstance(await rank.ask(Begin(3, 0.05)), Skip)
        node.direct(1, 0, dead=(1, 2))
        await rank.save(4, b"of one rank")
        await rank.save(5, b"of one rank")
        assert isinstance(await rank.ask(Begin(6)), Skip)
        # A newer recoverable step ends that: what is waited for then comes.
        await node.outlet.until(lambda: (1, 0, 5, False) in node.outlet.copies())
        node.direct(1, 4)
        # The step that was left out is not: others may have freed it.
        assert isinstance(await rank.ask(Begin(6)), Skip)
        await rank.save(7, b"together again")
        await rank.tell(Begin(8))
        node.direct(1, 7)
        assert isinstance(await rank.hear(), Slot)


@lived
async def test_a_step_that_finds_no_slot_is_told_and_is_not_saved_later(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        for step in range(3):
            await rank.save(step, b"held")
        await node.outlet.until(lambda: len(node.outlet.copies()) == 3)
        assert isinstance(await rank.ask(Begin(3, 0.05)), Skip)
        await node.outlet.until(lambda: node.outlet.reports["demo"].passed)
        told = node.outlet.reports["demo"].passed
        assert [(one.generation, one.rank, one.step) for one in told] == [(1, 0, 3)]
        node.direct(1, 2)
        answer = await rank.ask(Begin(3))
        assert isinstance(answer, Skip)
        assert answer.reason == "step 3 comes too late: this rank is past step 3"
        await rank.save(4, b"newer")
        await node.outlet.until(lambda: (1, 0, 4, False) in node.outlet.copies())
        assert not node.outlet.reports["demo"].passed


@lived
async def test_nobody_waits_longer_than_the_operator_allows(tmp_path: Path) -> None:
    async with (
        running(settings(tmp_path, slot_wait_max_s=0.05)) as node,
        training(node) as rank,
    ):
        for step in range(3):
            await rank.save(step, b"held")
        assert isinstance(await rank.ask(Begin(3, 1e9)), Skip)


@lived
async def test_a_trainer_that_blocks_gets_the_slot_that_becomes_free(tmp_path: Path) -> None:
    async with running(settings(tmp_path, slot_wait_s=1e-9)) as node, training(node) as rank:
        for step in range(3):
            await rank.save(step, b"held")
        await node.outlet.until(lambda: len(node.outlet.copies()) == 3)
        await rank.tell(Begin(3, 15.0))
        node.direct(1, 1)
        assert isinstance(await rank.hear(), Slot)


@lived
async def test_skips_that_last_are_a_finding_and_saved_snapshots_clear_it(tmp_path: Path) -> None:
    now = [1]
    world = Environment(stored_fds={}, keeper=Kept(), boot_ns=lambda: now[0])
    async with running(settings(tmp_path), world=world) as node, training(node) as rank:
        for step in range(3):
            await rank.save(step, b"held")
        assert isinstance(await rank.ask(Begin(3, 0.0)), Skip)
        (faulty,) = node.jobs.judgements(())
        assert isinstance(faulty, Faulty)
        assert faulty.finding.component == "job/demo"
        now[0] += 60 * 10**9
        assert node.jobs.judgements(()) == []  # no news of it: what was known holds
        await node.outlet.until(lambda: len(node.outlet.copies()) == 3)
        node.direct(1, 2)
        await rank.save(4, b"again")
        (healthy,) = node.jobs.judgements(())
        assert isinstance(healthy, Healthy)
        assert healthy.key == faulty.key


@lived
async def test_the_finding_of_a_job_that_is_gone_ends(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node:
        key = FindingKey("job/gone", "SnapshotsSkipped")
        (healthy,) = node.jobs.judgements([key, FindingKey("gpu/0", "Other")])
        assert healthy == Healthy(key, "the job is not on this node any more")


@lived
async def test_the_finding_of_a_job_that_has_ended_ends_while_its_memory_is_kept(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        for step in range(3):
            await rank.save(step, b"held")
        assert isinstance(await rank.ask(Begin(3, 0.0)), Skip)
        (faulty,) = node.jobs.judgements(())
        node.order(end_job=fleet_pb2.EndJob(job="demo", succeeded=False))
        assert node.jobs.metrics().vault_memory_bytes
        assert node.jobs.judgements([faulty.key]) == [Healthy(faulty.key, "the job has ended")]
        assert node.jobs.judgements(()) == []


@lived
async def test_a_copy_that_differs_from_what_the_trainer_hashed_is_never_verified(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        slot = await rank.begin(1, b"left right")
        halves = (
            Entry("left", 0, 4, digest=xxhash.xxh3_128_digest(b"left")),
            Entry("right", 5, 5, digest=xxhash.xxh3_128_digest(b"wrong")),
        )
        assert await rank.ask(Commit(1, slot.slot, slot.epoch, halves)) == Committed(1)
        await node.outlet.until(lambda: node.outlet.bad)
        assert "shard right is not what the trainer had" in node.outlet.bad[0]
        assert not node.outlet.copies()
        assert node.jobs.metrics().vault_torn_copies_total == 1
        # The slot is free again, the step can be saved once more.
        await rank.save(1, b"left right", digest=xxhash.xxh3_128_digest(b"left right"))
        await node.outlet.until(lambda: node.outlet.copies() == {(1, 0, 1, False)})


@lived
async def test_the_memory_that_an_ended_job_keeps_is_forgotten_on_order(tmp_path: Path) -> None:
    async with running(settings(tmp_path)) as node, launcher(node) as control:
        node.order(start_generation=plan(1))
        await control.hear()
        async with trainer(node) as rank:
            await rank.save(1, b"kept")
            await node.outlet.until(node.outlet.copies)
            node.order(forget_job=fleet_pb2.ForgetJob(job="demo"))
            assert node.outlet.copies()  # it runs
            await rank.save(2, b"goes on")
            await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
        node.order(end_job=fleet_pb2.EndJob(job="demo"))
        await control.hear()
        assert node.jobs.metrics().vault_memory_bytes > 0
        node.order(forget_job=fleet_pb2.ForgetJob(job="demo"))
        assert node.jobs.metrics().vault_memory_bytes == 0
        node.order(forget_job=fleet_pb2.ForgetJob(job="unheard-of"))


@lived
async def test_the_age_and_the_use_of_slots_are_shown(tmp_path: Path) -> None:
    now = [10**9]
    world = Environment(stored_fds={}, keeper=Kept(), boot_ns=lambda: now[0])
    async with running(settings(tmp_path), world=world) as node, training(node) as rank:
        await rank.save(1, b"one")
        await rank.save(2, b"two")
        await node.outlet.until(lambda: len(node.outlet.copies()) == 2)
        node.direct(1, 1)
        now[0] += 3 * 10**9
        node.direct(1, 1)  # the same step said again is not younger for it
        shown = node.jobs.metrics()
        assert (shown.vault_slots, shown.vault_slots_in_use) == (3, 2)
        assert shown.vault_slot_bytes == 3 * 4096
        assert shown.vault_recoverable_age_seconds == 3.0


@lived
async def test_progress_is_told_while_a_question_of_the_same_process_is_not_answered(
    tmp_path: Path,
) -> None:
    async with running(settings(tmp_path)) as node, training(node) as rank:
        for step in range(3):
            await rank.save(step, b"every slot is taken")
        # Nothing is recoverable, so no slot is given out before the controller says otherwise.
        await rank.tell(Begin(3))
        await rank.tell(Progress(3, 1, 0))
        await node.outlet.until(lambda: node.outlet.bodies("steps_completed"))
        node.direct(1, step=2)
        assert isinstance(await rank.hear(), Slot)
