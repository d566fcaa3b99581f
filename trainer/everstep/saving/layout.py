"""Slot layout: where the shards of a state lie in a slot, and their manifest for the agent."""

from everstep.copy_engine.views import ShardView, entry_of, offsets
from everstep_common.trainer_messages import Entry


class Layout:
    """Layout of a slot, remembered: after most steps the same shards lie at the same places."""

    def __init__(self) -> None:
        self._shards: tuple[ShardView, ...] = ()
        self._entries: tuple[Entry, ...] = ()

    def of(self, shards: tuple[ShardView, ...]) -> tuple[tuple[Entry, ...], int]:
        """Return the shards' entries, and how many bytes the slot needs."""
        begins, size_bytes = offsets(shards)
        if len(shards) == len(self._shards):
            known = zip(shards, begins, self._shards, self._entries, strict=True)
            entries = tuple(
                entry if shard is then and entry.offset_bytes == at else entry_of(shard, at)
                for shard, at, then, entry in known
            )
        else:
            entries = tuple(map(entry_of, shards, begins))
        self._shards, self._entries = shards, entries
        return entries, size_bytes
