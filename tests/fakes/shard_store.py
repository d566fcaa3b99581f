"""Snapshots without an agent: the shards that ranks saved, and any rank's restore from them."""

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from everstep.copy_engine.memory import Copier
from everstep.copy_engine.views import Capture, DescribedState, MissingError, Restoration, entry_of
from everstep_common.rank_messages import Entry


@dataclass(slots=True)
class ShardStore:
    """One step of a job."""

    copies: dict[int, dict[str, tuple[Entry, bytes]]] = field(default_factory=dict)

    def save(self, rank: int, capture: Capture) -> tuple[str, ...]:
        """Copy the state of a rank, as the copy engine does; return the shards' names."""
        shards = {
            view.name: (entry_of(view, 0), ctypes.string_at(view.address, view.size_bytes))
            for view in capture.views()
        }
        self.copies[rank] = shards
        return tuple(shards)

    def restore(self, rank: int, capture: Capture) -> tuple[str, ...]:
        """Restore a rank as the SDK does; return the shards that were asked for."""
        try:
            return self.bring(capture.targets(self._described([rank])))
        except MissingError:
            return self.bring(capture.targets(self._described(self.copies)))

    def entries(self) -> tuple[Entry, ...]:
        """Describe everyone's shards."""
        return self._described(self.copies)

    def _described(self, ranks: Iterable[int]) -> tuple[Entry, ...]:
        found = {
            name: entry for rank in ranks for name, (entry, _) in self.copies.get(rank, {}).items()
        }
        return tuple(found.values())

    def bring(self, first: Restoration) -> tuple[str, ...]:
        """Fill a state; return the shards that it asked for."""
        asked: list[str] = []
        restoration: Restoration | None = first
        while restoration is not None:
            asked += restoration.names
            memory = {
                name: (entry, ctypes.create_string_buffer(content, max(1, len(content))))
                for shards in self.copies.values()
                for name, (entry, content) in shards.items()
                if name in restoration.names
            }
            found = {
                name: (replace(entry, offset_bytes=4096), ctypes.addressof(buffer))
                for name, (entry, buffer) in memory.items()
            }
            restoration.fill(found, Copier(1))
            restoration = restoration.finish()
        return tuple(asked)


@dataclass(slots=True)
class StoreRun:
    """The `everstep.Run` of one rank whose snapshots go to a store."""

    rank: int
    store: ShardStore
    step: int | None = None

    def snapshots(self, state: Capture, /, *, raises: bool) -> "StoreSnapshots":
        """See Run."""
        return StoreSnapshots(self, state)

    def restorer(self) -> "StoreRun":
        """See Run."""
        return self

    def everyones(self) -> DescribedState | None:
        """See Restorer."""
        return None if self.step is None else DescribedState(self.step, self.store.entries())

    def bring(self, restoration: Restoration, /) -> int | None:
        """See Restorer."""
        self.store.bring(restoration)
        return self.step


@dataclass(frozen=True, slots=True)
class StoreSnapshots:
    """The `Snapshots` of a StoreRun."""

    run: StoreRun
    capture: Capture

    def snapshot(self, step: int, /) -> bool:
        """See Snapshots."""
        self.run.step = step
        self.run.store.save(self.run.rank, self.capture)
        return True
