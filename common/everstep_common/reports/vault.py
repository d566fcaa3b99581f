"""Vault reports: what a node says of a job's snapshots, of its storage and of its standbys."""

from dataclasses import dataclass
from typing import Annotated

from everstep_common import quantities as q
from everstep_common.bounds import Integer, Items
from everstep_common.preload import Preload
from everstep_common.reports.jobs import StoredStep

# As many as Linux numbers processes (PID_MAX_LIMIT).
Processes = Annotated[int, Integer(0, 2**22)]


@dataclass(frozen=True, slots=True)
class Standbys:
    """The warm standbys here: how many wait, how many are to come, what they take together."""

    ready: Processes = 0
    making: Processes = 0
    memory_bytes: q.SizeBytes = 0
    # Why standbys are no longer made; "": they may be.
    ended: q.Line = ""


@dataclass(frozen=True, slots=True)
class Turnover:
    """The slots here: how many a rank has, and the times from a commit until its slot is free."""

    slots: q.Count
    # The median of the newest times of all ranks, and the 99th of 100.
    p50_ns: q.DurationNs
    p99_ns: q.DurationNs


@dataclass(frozen=True, slots=True)
class PersistFailure:
    """A step that was ordered could not be brought to storage."""

    generation: q.Generation
    step: q.Step
    reason: q.Evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultCopy:
    """One verified copy of what one rank snapshotted after one step."""

    generation: q.Generation
    rank: q.Rank
    step: q.Step
    # This node is not the one that wrote it.
    replica: bool = False
    # xxh3-128 over the chunk hashes.
    root_hash: q.HashBytes
    size_bytes: q.SizeBytes
    # The part of the state that it is: xxh3-128 over the sorted names of the shards inside.
    layout: q.HashBytes
    # A file in storage, not memory.
    on_disk: bool = False
    # The layout without the shards that another rank's copy can replace; empty: that is all of it.
    needed_layout: q.HashBytesOrNone = b""


@dataclass(frozen=True, slots=True)
class PassedStep:
    """A rank has gone past a step: of those up to it, it has what is told, and gets no more."""

    generation: q.Generation
    rank: q.Rank
    step: q.Step


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultReport:
    """Report of a node on one job: all that it has, in place of what it reported before."""

    job: q.JobName
    # Id of the job with which the lineage of the copies began; "": not known yet.
    lineage_id: q.JobId = ""
    # Every committed and verified copy, own slots and replicas; of a change, those that are new.
    copies: Annotated[tuple[VaultCopy, ...], Items(1_000_000)] = ()
    # Highest generation whose processes are gone and whose last commits have been verified here.
    settled_generation: q.Generation = 0
    # Bad copies seen since the report before, as sentences.
    bad_copies: Annotated[tuple[q.Line, ...], Items(100_000)] = ()
    # Whole steps in the job's storage folder that this node can read.
    stored: Annotated[tuple[StoredStep, ...], Items(100_000)] = ()
    # Steps that were ordered and could not be brought to storage.
    persist_failures: Annotated[tuple[PersistFailure, ...], Items(100_000)] = ()
    # The copies are a change of the list that the report of this job before told on this stream;
    # ``gone`` are those of that list that are no more, just as they were told.
    change: bool = False
    gone: Annotated[tuple[VaultCopy, ...], Items(1_000_000)] = ()
    # None: none are known.
    standbys: Standbys | None = None
    # What ranks here have loaded; None: nothing new.
    preload: Preload | None = None
    # Memory was too short here for the replicas of more than one member.
    replicas_short: bool = False
    # Id of the storage folder to which this node has written files of the job; "": not known.
    storage_id: q.StorageId = ""
    # None: no slot here has become free again yet.
    turnover: Turnover | None = None
    # Ranks that have left out a step which is newer than all copies that they have.
    passed: Annotated[tuple[PassedStep, ...], Items(q.RANKS_OF_NODE_MAX)] = ()

    def problems(self) -> list[str]:
        """Say what is wrong with what is in storage."""
        if all(step.manifest_hash for step in self.stored):
            return []
        return ["a step in storage without the hash of its manifest"]
