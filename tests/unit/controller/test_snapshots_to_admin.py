"""Snapshots on their way to the command line: nothing is lost, and what has ended says so."""

from dataclasses import replace

from everstep_common.reports import Phase, Turnover
from everstep_controller.api.admin.messages.snapshot_messages import cadence, copy, snapshots
from everstep_controller.core.accounting.ledger import Ledger
from everstep_controller.core.model.job import (
    Generation,
    JobRecord,
    JobSpec,
    JobState,
    Lineage,
    MemberPhases,
)
from everstep_controller.core.vault.copies import Copy, Tier
from everstep_controller.core.vault.snapshot_table import (
    SnapshotNumbers,
    SnapshotStep,
    SnapshotTable,
    StepState,
    StorageTable,
    TierCopies,
)

_STORED = SnapshotStep(
    generation=3, step=40, ended_ns=7, state=StepState.COMPLETE, reason="", parts=2, parts_held=2,
    size_bytes=64, tiers=(TierCopies("shared storage", 1, 2, (), 64),),
)  # fmt: skip
_HELD = replace(
    _STORED, step=42, state=StepState.PROBATION, reason="restored",
    tiers=(TierCopies("own memory", 2, 2, ("a", "b"), 64),),
)  # fmt: skip
_STORAGE = StorageTable(
    path="/c", every_steps=5, every_ns=0, keep=2, step=None, generation=0, size_bytes=0,
    stored_ns=0, pending=(), failure="", failed_step=0,
)  # fmt: skip
_NUMBERS = SnapshotNumbers(
    job="train", restore_step=42, recoverable_step=42, recoverable_age_ns=5, steps_behind=1,
    states={StepState.COMPLETE: 2}, snapshot_every=2, storage=_STORAGE, bad_copies=6,
)  # fmt: skip
_TABLE = SnapshotTable(
    numbers=_NUMBERS,
    restore_generation=3,
    restore_reason="step 42 is the newest",
    not_newer="step 43: too new",
    steps=(_HELD, _STORED),
    cadence_reason="because",
)


def _job(state: JobState = JobState.RUNNING) -> JobRecord:
    return JobRecord(
        id="train-1",
        name="train",
        spec=JobSpec(uid=0, token_sha256="", nodes_min=1, nodes_max=1, processes_per_node=2),
        ledger=Ledger(0),
        state=state,
        generation=Generation(3),
        lineage=Lineage(last_step=43),
        snapshots_skipped=9,
    )


def _with(**numbers: object) -> SnapshotTable:
    return replace(_TABLE, numbers=replace(_NUMBERS, **numbers))  # type: ignore[arg-type]


def test_a_running_job_is_told_as_it_is_known() -> None:
    told = snapshots(_TABLE, _job())
    assert (told.job, told.state, told.generation, told.step) == ("train", "running", 3, 43)
    assert (told.restore_step, told.restore_generation) == (42, 3)
    assert (told.recoverable_step, told.recoverable_age_ns, told.steps_behind) == (42, 5, 1)
    assert told.bad_copies == 6
    held, stored = told.steps
    assert (held.state, held.reason) == ("probation", "restored")
    assert (held.tiers[0].tier, list(held.tiers[0].nodes)) == ("own memory", ["a", "b"])
    assert (stored.parts, stored.parts_held, stored.ended_ns) == (2, 2, 7)
    assert not told.storage.has_step


def test_what_there_is_not_is_marked() -> None:
    table = replace(_with(restore_step=None, recoverable_step=None, storage=None), steps=())
    job = _job()
    job.lineage.last_step = None
    told = snapshots(table, job)
    assert (told.has_step, told.has_restore, told.has_recoverable) == (False, False, False)
    assert not told.HasField("storage")


def test_skipped_snapshots_are_told_with_the_cadence() -> None:
    told = snapshots(_TABLE, _job()).cadence
    assert (told.every, told.reason, told.skipped) == (2, "because", 9)


def test_how_long_slots_are_taken_is_told_where_it_is_known() -> None:
    known = _with(turnover=Turnover(3, 150_000_000, 310_000_000))
    told = snapshots(known, _job()).cadence
    assert (told.slots, told.slot_taken_p50_ns, told.slot_taken_p99_ns) == (
        3, 150_000_000, 310_000_000,
    )  # fmt: skip
    assert not snapshots(_TABLE, _job()).cadence.slots


def test_a_job_that_has_ended_goes_back_to_nothing() -> None:
    told = snapshots(_with(storage=None), _job(JobState.ENDED))
    assert (told.has_restore, told.has_recoverable) == (False, False)
    assert "everstep job train forget" in told.restore_reason
    assert told.not_newer == ""
    assert len(told.steps) == 2


def test_a_job_that_has_ended_tells_from_where_another_one_goes_on() -> None:
    storage = replace(_STORAGE, step=40, generation=3)
    told = snapshots(_with(storage=storage), _job(JobState.ENDED))
    assert told.restore_reason.endswith("a new job with the same --persist goes on from step 40")
    assert (told.storage.has_step, told.storage.step, told.storage.generation) == (True, 40, 3)


def test_a_job_that_has_ended_and_stored_nothing_promises_nothing() -> None:
    told = snapshots(_TABLE, _job(JobState.ENDED))
    assert "--persist" not in told.restore_reason
    assert not told.storage.has_step


def test_a_single_copy_tells_its_tier() -> None:
    memory = Copy("a", 3, 1, 42, False, "ab", 64, "cd")
    peer = Copy("a", 3, 1, 42, True, "ab", 64, "cd")
    disk = Copy("a", 3, 1, 42, False, "ab", 64, "cd", Tier.DISK)
    told = [copy(one, unreachable=False) for one in (memory, peer, disk)]
    assert [line.tier for line in told] == ["own memory", "peer memory", "local disk"]
    assert (told[0].root_hash, told[0].layout, told[0].node) == ("ab", "cd", "a")
    assert copy(memory, unreachable=True).unreachable


def _of_script(*phases: Phase, steps: int = 3) -> JobRecord:
    job = _job()
    job.generation.phases = MemberPhases({f"n{at}": phase for at, phase in enumerate(phases)})
    job.ledger.step_count = steps
    return job


def test_a_job_whose_script_takes_no_snapshots_is_not_told_that_every_step_is_snapshotted() -> None:
    numbers = replace(_NUMBERS, states={})
    unchanged = cadence(numbers, "every step is snapshotted", _of_script(Phase.STARTED))
    assert (unchanged.every, "does without Everstep's" in unchanged.reason) == (0, True)
    calls_in = cadence(numbers, "every step is snapshotted", _of_script(Phase.RESTORED))
    assert (calls_in.every, "has saved no step with Everstep yet" in calls_in.reason) == (0, True)


def test_a_job_that_has_snapshots_or_made_no_step_yet_is_told_its_cadence() -> None:
    numbers = replace(_NUMBERS, states={})
    begins = cadence(numbers, "because", _of_script(Phase.STARTED, steps=0))
    saves = cadence(_NUMBERS, "because", _of_script(Phase.RESTORED))
    assert (begins.reason, saves.reason, saves.every) == ("because", "because", 2)
