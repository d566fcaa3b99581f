"""What the metrics page shows of jobs and snapshots: numbers only; ``*_total`` counts."""

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

from everstep_agent.jobs.desk import Desk
from everstep_agent.jobs.job import NodeJob


def _metric(help: str) -> int:
    # dataclasses.field is typed as what it stands for.
    value: int = dataclasses.field(metadata={"help": help})
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsMetrics:
    """The numbers of one moment."""

    jobs: int = _metric("Jobs with a launcher or snapshots on this node.")
    launchers: int = _metric("Launchers that are connected.")
    job_connections: int = _metric("Connections of launchers and training processes.")
    vault_memory_bytes: int = _metric("Memory given to snapshots and replicas.")
    vault_copies: int = _metric("Verified snapshots that this node's ranks wrote.")
    vault_replicas: int = _metric("Verified snapshots held for other nodes.")
    vault_commits_total: int = _metric("Snapshots committed.")
    vault_skips_total: int = _metric("Snapshots skipped because no slot was free in time.")
    vault_bad_copies_total: int = _metric("Copies whose bytes were not what was hashed.")
    vault_replicated_total: int = _metric("Replicas that the other node acknowledged.")
    vault_replicated_bytes_total: int = _metric("Bytes of these replicas.")
    vault_received_bytes_total: int = _metric("Bytes of replicas received from other nodes.")
    vault_replication_failures_total: int = _metric("Attempts to replicate that failed.")
    launchers_overruled_total: int = _metric(
        "Generations whose ranks the agent killed because their launcher did not stop them."
    )


def jobs_metrics(jobs: Collection[NodeJob], desk: Desk, connections: int) -> JobsMetrics:
    """Return the numbers of this moment."""
    facts = [fact for job in jobs for fact in job.vault.holdings.facts()]
    counts = desk.site.counts
    return JobsMetrics(
        jobs=len(jobs),
        launchers=sum(job.launcher is not None for job in jobs),
        job_connections=connections,
        vault_memory_bytes=desk.site.allocator.used_bytes,
        vault_copies=sum(not replica for _, replica in facts),
        vault_replicas=sum(replica for _, replica in facts),
        vault_commits_total=counts.committed,
        vault_skips_total=counts.skipped,
        vault_bad_copies_total=counts.bad_copies,
        vault_replicated_total=counts.replicated,
        vault_replicated_bytes_total=counts.replicated_bytes,
        vault_received_bytes_total=counts.received_bytes,
        vault_replication_failures_total=counts.replication_failures,
        launchers_overruled_total=desk.tally.launchers_overruled,
    )


def no_metrics() -> JobsMetrics:
    """Return the numbers of an agent that does not serve jobs yet."""
    return JobsMetrics(**{field.name: 0 for field in dataclasses.fields(JobsMetrics)})
