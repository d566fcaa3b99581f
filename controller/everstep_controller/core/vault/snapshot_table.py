"""What `everstep snapshots JOB` shows: all steps with their copies, and where a job would go.

Tiers are named as users read them, in the order in which a restore takes them: own memory, peer
memory, local disk, shared storage.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class StepState(Enum):
    """What may become of a step."""

    WHOLE = "whole"
    PARTIAL = "partial"
    # The job was restored from it and has not made enough new steps since.
    PROBATION = "probation"
    # The job crashed twice soon after it was restored from it.
    BLACKLISTED = "blacklisted"
    # Of a branch that a recovery has left behind.
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class TierCopies:
    """The copies of one step in one tier."""

    tier: str
    copies: int
    # Parts of the state that they cover.
    parts: int
    nodes: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotStep:
    """One step; counts are of copies that can be reached now."""

    generation: int
    step: int
    # When all ranks had completed it, on the controller's timeline; 0 when unknown.
    ended_ns: int
    state: StepState
    # One sentence for a step that is not simply whole.
    reason: str
    parts: int
    parts_held: int
    size_bytes: int
    tiers: tuple[TierCopies, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTable:
    """How far the bringing of a job's state to storage is."""

    path: str
    every_steps: int
    every_ns: int
    keep: int
    # Newest whole step there; None when there is none.
    step: int | None
    generation: int
    size_bytes: int
    stored_ns: int
    # Steps that are on their way, oldest first.
    pending: tuple[int, ...]
    # Why a step could not be brought there last, unless a newer one was.
    failure: str
    failed_step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotNumbers:
    """What can be said of a job's snapshots in numbers."""

    job: str
    # The step that would be restored if the job stopped now; None without one.
    restore_step: int | None
    # Newest step that survives the loss of any one node, and how old it is.
    recoverable_step: int | None
    recoverable_age_ns: int
    # How many completed steps the job would lose with it.
    steps_behind: int
    # How many steps there are of each kind.
    states: Mapping[StepState, int]
    # Snapshots are taken at every so many steps, 0 while that is not decided.
    snapshot_every: int
    storage: StorageTable | None
    bad_copies: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotTable:
    """The snapshots of one job; steps newest first."""

    numbers: SnapshotNumbers
    # Why the step that would be restored, and which generation made it; or why there is none.
    restore_generation: int
    restore_reason: str
    # Why no newer one; empty when there is none.
    not_newer: str
    steps: tuple[SnapshotStep, ...]
    # Why snapshots are taken as often as they are.
    cadence_reason: str
