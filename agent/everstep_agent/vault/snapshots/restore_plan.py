"""Restore plan: the state that a generation begins from, and which copies hold it. Pure."""

from dataclasses import dataclass

from everstep_agent.vault.snapshots.copies import CopyKey, CopyRef
from everstep_common.orders import ShardSource
from everstep_common.reports import StoredStep


def copy_named_by(source: ShardSource) -> CopyRef:
    """Return the copy that a plan names, wherever it is."""
    key = CopyKey(source.generation, source.rank, source.step)
    return CopyRef(key, source.size_bytes, bytes.fromhex(source.root_hash))


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """State that a node's ranks are to get back; ``restores``: whether there is any."""

    generation: int = 0
    ranks: range = range(0)
    restores: bool = False
    # Sources of one shard come best first.
    sources: tuple[ShardSource, ...] = ()
    stored: StoredStep | None = None


@dataclass(frozen=True, slots=True)
class SpareRequest:
    """Request to a waiting spare: memory of this size for each rank, and copies ahead."""

    ranks: range
    copy_bytes: int
    ahead: tuple[ShardSource, ...] = ()
