"""Snapshots of a job as messages of the admin API: its steps, their copies, its storage."""

from everstep_common.reports import Phase
from everstep_controller.core.jobs import restore_point
from everstep_controller.core.model.job import JobRecord, JobState
from everstep_controller.core.vault.copies import Copy
from everstep_controller.core.vault.snapshot_table import (
    SnapshotNumbers,
    SnapshotStep,
    SnapshotTable,
    StorageTable,
    TierCopies,
    tier_of,
)
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
    return None if numbers.storage is None else _storage(numbers.storage)


def _storage(table: StorageTable) -> admin_pb2.StorageLine:
    return admin_pb2.StorageLine(
        path=table.path,
        every_steps=table.every_steps,
        every_ns=table.every_ns,
        keep=table.keep,
        step=table.step or 0,
        has_step=table.step is not None,
        generation=table.generation,
        size_bytes=table.size_bytes,
        stored_ns=table.stored_ns,
        pending=table.pending,
        failure=table.failure,
        failed_step=table.failed_step,
    )


def copy(held: Copy, *, unreachable: bool) -> admin_pb2.CopyLine:
    """Return a single copy."""
    return admin_pb2.CopyLine(
        generation=held.generation,
        step=held.step,
        rank=held.rank,
        tier=tier_of(held),
        node=held.node,
        size_bytes=held.size_bytes,
        root_hash=held.root_hash,
        layout=held.layout,
        unreachable=unreachable,
    )


def _step(line: SnapshotStep) -> admin_pb2.StepLine:
    return admin_pb2.StepLine(
        generation=line.generation,
        step=line.step,
        ended_ns=line.ended_ns,
        state=line.state.value,
        reason=line.reason,
        parts=line.parts,
        parts_held=line.parts_held,
        size_bytes=line.size_bytes,
        tiers=[_tier(one) for one in line.tiers],
    )


def _tier(line: TierCopies) -> admin_pb2.TierLine:
    return admin_pb2.TierLine(
        tier=line.tier,
        copies=line.copies,
        parts=line.parts,
        nodes=line.nodes,
        size_bytes=line.size_bytes,
    )
