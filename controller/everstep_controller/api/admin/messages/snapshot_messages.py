"""Snapshots of a job as messages of the admin API: its steps, their copies, its storage."""

from everstep_common.reports import Phase
from everstep_controller.core.jobs import restore_point
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.snapshot_table import (
    SnapshotNumbers,
    SnapshotStep,
    SnapshotTable,
    tier_of,
)
from everstep_proto.answers import answer
from everstep_proto.generated import admin_pb2


def snapshots(table: SnapshotTable, job: JobRecord) -> admin_pb2.Snapshots:
    """Return every step of a job and what a restart would go back to."""
    numbers = table.numbers
    told = admin_pb2.Snapshots(
        job=job.name,
        state=job.state.value,
        generation=job.generation.number,
        step=job.lineage.completed_step or 0,
        has_step=job.lineage.completed_step is not None,
        recoverable_age_ns=numbers.recoverable_age_ns,
        steps_behind=numbers.steps_behind,
        members=len(job.generation.members),
        steps=[_step(line) for line in table.steps],
        cadence=cadence(numbers, table.cadence_reason, job),
        storage=storage(numbers),
        bad_copies=numbers.bad_copies,
        forgotten_by=job.ending.forgotten_by,
    )
    if job.state is JobState.ENDED:
        told.restore_reason = f"the job has ended; {_onward(numbers)}"
        return told
    told.has_restore = numbers.restore_step is not None
    told.restore_step, told.restore_generation = numbers.restore_step or 0, table.restore_generation
    told.restore_reason, told.not_newer = table.restore_reason, table.not_newer
    told.has_recoverable = numbers.recoverable_step is not None
    told.recoverable_step = numbers.recoverable_step or 0
    return told


def _onward(numbers: SnapshotNumbers) -> str:
    """Return what becomes of the state of a job that has ended."""
    if numbers.storage is not None and numbers.storage.step is not None:
        return f"a new job with the same --persist goes on from step {numbers.storage.step}"
    return f"what nodes keep of it goes after a while, or with 'everstep job {numbers.job} forget'"


def cadence(numbers: SnapshotNumbers, reason: str, job: JobRecord) -> admin_pb2.Cadence:
    """Return how often a job is snapshotted and why, or that its script takes no snapshots."""
    if without := _without_snapshots(numbers, job):
        return admin_pb2.Cadence(reason=without)
    told = admin_pb2.Cadence(
        every=numbers.snapshot_every, reason=reason, skipped=job.snapshots_skipped
    )
    if (turnover := numbers.turnover) is not None:
        told.slots = turnover.slots
        told.slot_taken_p50_ns, told.slot_taken_p99_ns = turnover.p50_ns, turnover.p99_ns
    return told


def _without_snapshots(numbers: SnapshotNumbers, job: JobRecord) -> str:
    """Return why a job has no snapshots; empty where it has some, or has made no step yet."""
    taken = restore_point.has_state(job) or any(numbers.states.values())
    if taken or job.snapshot_costs.newest_ns or not job.ledger.step_count:
        return ""
    if len(job.generation.phases) == job.generation.phases.count(Phase.STARTED):
        return "none: its script does without Everstep's, so a failure costs what its own ones cost"
    return "none: its script has saved no step with Everstep yet"


def storage(numbers: SnapshotNumbers) -> admin_pb2.StorageLine | None:
    """Return how far the bringing to storage is; None for a job without."""
    table = numbers.storage
    if table is None:
        return None
    return answer(admin_pb2.StorageLine, table, has_step=table.step is not None)


def copy(held: Copy, *, unreachable: bool) -> admin_pb2.CopyLine:
    """Return a single copy."""
    return answer(admin_pb2.CopyLine, held, tier=tier_of(held), unreachable=unreachable)


def _step(line: SnapshotStep) -> admin_pb2.StepLine:
    tiers = [answer(admin_pb2.TierLine, one) for one in line.tiers]
    return answer(admin_pb2.StepLine, line, tiers=tiers)
