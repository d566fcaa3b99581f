"""Restore plan: the state that a generation begins from, and which copies hold it. Pure."""

from dataclasses import dataclass

from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_common.trainer_messages import DataRange


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSource:
    """One rank's copy that holds some of the state to restore, and where it is."""

    node: str
    generation: int
    rank: int
    step: int
    root_hash: bytes
    size_bytes: int
    layout: bytes
    bulk_address: str = ""
    on_disk: bool = False

    @property
    def copy(self) -> CopyRef:
        """Return the copy, wherever it is."""
        key = CopyKey(self.generation, self.rank, self.step)
        return CopyRef(key, self.size_bytes, self.root_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """A step that is also whole in the job's storage."""

    generation: int
    step: int
    world_size: int = 0
    manifest_hash: bytes = b""
    size_bytes: int = 0
    skipped: tuple[DataRange, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """State that a node's ranks are to get back; ``restores``: whether there is any."""

    generation: int = 0
    ranks: range = range(0)
    restores: bool = False
    # Sources of one shard come best first.
    sources: tuple[PlannedSource, ...] = ()
    stored: StoredState | None = None


@dataclass(frozen=True, slots=True)
class SpareRequest:
    """Request to a waiting spare: memory of this size for each rank, and copies ahead."""

    ranks: range
    copy_bytes: int
    ahead: tuple[PlannedSource, ...] = ()
