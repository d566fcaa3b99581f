"""Job metrics: the counts and sizes of jobs and snapshots on a node, as plain numbers."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from everstep_agent.jobs.job.context import JobContext
from everstep_agent.jobs.job.node_job import NodeJob
from everstep_agent.vault.snapshots.slots import SlotState


def _metric(help: str) -> int:
    # dataclasses.field is typed as the value of the field, not as the field.
    value: int = dataclasses.field(metadata={"help": help})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsMetrics:
    """The numbers of one moment."""

    jobs: int = _metric("Jobs with a launcher or snapshots on this node.")
    launchers: int = _metric("Launchers that are connected.")
    job_connections: int = _metric("Connections of launchers and training processes.")
    bulk_connections_unproven: int = _metric(
        "Connections of other hosts that have proven no job's key yet."
    )
    bulk_connections_evicted_total: int = _metric(
        "Such connections that lost their place to newer ones."
    )
    bulk_connections_refused_total: int = _metric(
        "Connections to the bulk port that were ended unheard: of users of this node who are no "
        "agents, and of hosts that prove no key and come too often."
    )
    standbys_ready: int = _metric("Warm standbys of launchers that can become ranks at once.")
    standbys_starting: int = _metric("Warm standbys that are being made, or are to be.")
    standby_memory_bytes: int = _metric(
        "Memory that warm standbys take, their share of what is shared (PSS), as launchers say."
    )
    vault_memory_bytes: int = _metric("Memory given to snapshots and replicas.")
    vault_slot_bytes: int = _metric("Memory of the slots of this node's ranks.")
    vault_replica_bytes: int = _metric("Memory of replicas held for other nodes.")
    vault_fetched_bytes: int = _metric("Memory of copies fetched or copied to be restored from.")
    vault_slots: int = _metric("Slots of this node's ranks.")
    vault_slots_in_use: int = _metric("Slots with a snapshot in them, or being written.")
    vault_evictions_total: int = _metric(
        "Times that the kept memory of a failed job was given to another job."
    )
    vault_recoverable_age_seconds: float = _metric(
        "Time since the newest recoverable step of a job became so; the oldest of all jobs."
    )
    vault_recoverable_lag_steps: int = _metric(
        "Completed steps that a restore would repeat now; the most of all jobs."
    )
    vault_snapshots: int = _metric("Verified snapshots that this node's ranks wrote.")
    vault_replicas: int = _metric("Verified snapshots held for other nodes.")
    vault_commits_total: int = _metric("Snapshots committed.")
    vault_snapshots_skipped_total: int = _metric(
        "Snapshots skipped because no slot was free in time."
    )
    vault_corrupt_copies_total: int = _metric("Copies whose bytes were not what was hashed.")
    vault_torn_copies_total: int = _metric(
        'Copies that were not what the trainer had hashed before it copied (hash="trainer").'
    )
    vault_replications_total: int = _metric("Replicas that the other node acknowledged.")
    vault_replicated_bytes_total: int = _metric("Bytes of these replicas.")
    vault_received_bytes_total: int = _metric("Bytes of replicas received from other nodes.")
    vault_replication_failures_total: int = _metric("Attempts to replicate that failed.")
    vault_prefetched_copies_total: int = _metric(
        "Copies that this node fetched while a member was silent and not judged lost, or because "
        "another node only had them."
    )
    vault_prefetched_bytes_total: int = _metric("Bytes of these copies.")
    vault_prefetches_discarded_total: int = _metric(
        "Times that a silent member was heard again, and what was fetched of it was not needed."
    )
    storage_files_written_total: int = _metric("Files of ranks that were brought to storage.")
    storage_bytes_written_total: int = _metric("Bytes of these files.")
    storage_write_seconds_total: float = _metric("Time that writing these files took.")
    storage_write_failures_total: int = _metric("Attempts to bring a file to storage that failed.")
    storage_workers_hung: int = _metric(
        "Storage processes that were killed and do not die, because a file system hangs."
    )
    storage_last_write_age_seconds: float = _metric(
        "Time since this node last brought a file to storage; the oldest of all jobs that do."
    )
    launcher_stops_forced_total: int = _metric(
        "Generations whose ranks the agent killed because their launcher did not stop them."
    )


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """Counts that neither a job nor the context has."""

    connections: int
    evictions: int
    bulk_unproven: int
    bulk_evicted: int
    bulk_refused: int


def jobs_metrics(
    jobs: Collection[NodeJob], context: JobContext, others: ServerCounts
) -> JobsMetrics:
    """Return the numbers of this moment."""
    holdings = [job.vault.holdings for job in jobs]
    facts = [fact for held in holdings for fact in held.manifests()]
    slots = [slot for held in holdings for memory in held.ranks for slot in memory.table.slots]
    slot_bytes, replica_bytes = map(sum, zip((0, 0), *(h.sizes() for h in holdings), strict=True))
    running = [job.freshness for job in jobs if not job.facts.ended]
    counts, now_ns = context.vault_context.counters, context.boot_ns()
    waiting = [job.link.standbys for job in jobs if job.link.standbys is not None]
    return JobsMetrics(
        standbys_ready=sum(one.ready for one in waiting),
        standbys_starting=sum(one.making for one in waiting),
        standby_memory_bytes=sum(one.memory_bytes for one in waiting),
        vault_slot_bytes=slot_bytes,
        vault_replica_bytes=replica_bytes,
        vault_fetched_bytes=max(
            0, context.vault_context.allocator.used_bytes - slot_bytes - replica_bytes
        ),
        vault_slots=len(slots),
        vault_slots_in_use=sum(slot.state is not SlotState.EMPTY for slot in slots),
        vault_evictions_total=others.evictions,
        vault_recoverable_age_seconds=max((f.age_s(now_ns) for f in running), default=0.0),
        vault_recoverable_lag_steps=max((f.steps_behind() for f in running), default=0),
        vault_torn_copies_total=counts.torn,
        jobs=len(jobs),
        launchers=sum(job.link.connected for job in jobs),
        job_connections=others.connections,
        bulk_connections_unproven=others.bulk_unproven,
        bulk_connections_evicted_total=others.bulk_evicted,
        bulk_connections_refused_total=others.bulk_refused,
        vault_memory_bytes=context.vault_context.allocator.used_bytes,
        vault_snapshots=sum(not replica for _, replica in facts),
        vault_replicas=sum(replica for _, replica in facts),
        vault_commits_total=counts.committed,
        vault_snapshots_skipped_total=counts.skipped,
        vault_corrupt_copies_total=counts.bad_copies,
        vault_replications_total=counts.replicated,
        vault_replicated_bytes_total=counts.replicated_bytes,
        vault_received_bytes_total=counts.received_bytes,
        vault_replication_failures_total=counts.replication_failures,
        vault_prefetched_copies_total=counts.early_copies,
        vault_prefetched_bytes_total=counts.early_bytes,
        vault_prefetches_discarded_total=counts.early_discarded,
        storage_files_written_total=counts.stored,
        storage_bytes_written_total=counts.stored_bytes,
        storage_write_seconds_total=counts.stored_s,
        storage_write_failures_total=counts.store_failures,
        storage_workers_hung=sum(job.storage.files.hung for job in jobs),
        storage_last_write_age_seconds=max((job.storage.files.age_s for job in jobs), default=0.0),
        launcher_stops_forced_total=context.stop_counts.launchers_overruled,
    )


def no_metrics() -> JobsMetrics:
    """Return the numbers of an agent that does not serve jobs yet."""
    return JobsMetrics(**{field.name: 0 for field in dataclasses.fields(JobsMetrics)})
