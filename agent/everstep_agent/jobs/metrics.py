"""What the metrics page shows of jobs and snapshots: numbers only; ``*_total`` counts."""

import dataclasses
from dataclasses import dataclass


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
