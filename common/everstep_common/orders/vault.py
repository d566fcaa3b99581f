"""Vault orders: what the vault of a node shall do for a job, in place of what was said before."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Integer, Items
from everstep_common.orders.jobs import ShardSources
from everstep_common.preload import Preload
from everstep_common.reports import DataRanges, StoredStep

# A node keeps the replicas of four others at most.
REPLICA_SOURCES_MAX = 64
Term = Annotated[int, Integer(0, q.NUMBER_MAX)]
Steps = Annotated[tuple[q.Step, ...], Items(100_000)]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One rank's file of a step in storage, by the copy in memory that it was written from."""

    rank: q.Rank
    root_hash: q.Hash
    size_bytes: q.SizeBytes
    # The part of the state that it is.
    layout: q.HashOrNone = ""
    # Id of the folder that it was written to; "": not known.
    storage_id: q.StorageId = ""


@dataclass(frozen=True, slots=True)
class Publish:
    """Order to point `latest` to a step, for a generation; with no target it only fences."""

    generation: q.Generation
    target: StoredStep | None
    # Every file of the target, while its manifest is not written yet.
    files: Annotated[tuple[StoredFile, ...], Items(1_000_000)]
    # What must not be removed; empty removes nothing. All else goes that is older than the target,
    # or of an older generation; what is newer may be being written.
    keep: Annotated[tuple[StoredStep, ...], Items(100_000)]
    # Data that the job leaves out, for that manifest.
    skipped: DataRanges = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultDirective:
    """Duties of a node for a job's snapshots: what it keeps, copies and persists."""

    job: q.JobName
    job_id: q.JobId = ""
    lineage_id: q.JobId = ""
    # One of an older generation is ignored.
    generation: q.Generation
    term: Term
    # Newest step that is recoverable without any one node; None before there is one.
    recoverable_step: q.Step | None = None
    # Steps above it that some rank has passed without a snapshot: they can never become common.
    dead_steps: Steps = ()
    # Node that keeps the replicas of the own slots, and its bulk listener; "" on one node.
    replica_target: q.NodeName = ""
    replica_bulk_address: q.Address = ""
    # Key for bulk transfers of this job between agents.
    transfer_key: q.TransferKey = b""
    # Steps of this generation to persist, oldest first; each stays in memory until it is there.
    persist_steps: Steps = ()
    # This node, and no other, moves `latest` in the job's storage folder.
    publish: Publish | None = None
    # From step snapshot_from on, ahead of all ranks, only multiples of this are snapshotted; 0 and
    # 1: every step.
    snapshot_every: q.Step = 1
    snapshot_from: q.Step = 0
    # Ranks whose replicas here are persisted too, because the node that wrote them cannot.
    persist_replicas: Annotated[tuple[q.Rank, ...], Items(1_000_000)] = ()
    # The last step before a planned restart, snapshotted whatever the rhythm is; who begins a later
    # one waits for the restart. None: none is planned.
    hold_after: q.Step | None = None
    # For a spare that keeps replicas, which gets no plan: the copies that the generation began
    # from.
    sources: ShardSources = ()
    # A member's agent is away: no newer step becomes recoverable, so waiting for a slot is in vain.
    member_away: bool = False
    # Why snapshot_every is what it is, for the launcher's terminal; "" on all nodes but one.
    cadence_reason: q.Evidence = ""
    # host:port of the bulk listeners of the nodes whose replicas this one keeps.
    replica_sources: Annotated[tuple[q.Address, ...], Items(REPLICA_SOURCES_MAX)] = ()
    # Member to tell the own steps while no controller is there, and its bulk listener; "": nobody.
    collector: q.NodeName = ""
    collector_bulk_address: q.Address = ""
    # Ranks whose agents are away, and the step of persist_steps that they are to write by
    # themselves: this node, and no other, orders it in the job's storage folder, and reads it in.
    # None: none is wanted.
    absent_ranks: Annotated[tuple[q.Rank, ...], Items(1_000_000)] = ()
    absent_step: q.Step | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpareMemory:
    """Memory that a node makes ready while it waits as a spare, and copies that it fetches."""

    job: q.JobName
    job_id: q.JobId = ""
    lineage_id: q.JobId = ""
    term: Term
    # Largest copy of a rank, and how many ranks would come here; 0: none would, and what is fetched
    # guards what another node only has.
    copy_bytes: q.SizeBytes
    processes: q.RanksOfNode
    # Copies of a silent member's ranks, whose place this node would take, and the first of these
    # ranks; empty: nothing is to be fetched (any more), and what is on its way is left off.
    ahead: ShardSources = ()
    first_rank: q.Rank = 0
    # Key for bulk transfers of this job between agents; set with ``ahead``.
    transfer_key: q.TransferKey = b""

    @property
    def guards(self) -> bool:
        """Whether what is fetched guards what another node only has."""
        return bool(self.ahead) and not self.copy_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SparePreload:
    """What standbys of a node that waits as a spare import meanwhile."""

    job: q.JobName
    job_id: q.JobId = ""
    lineage_id: q.JobId = ""
    term: Term
    preload: Preload
