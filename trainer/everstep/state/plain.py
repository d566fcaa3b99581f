"""A state of plain arrays: each keeps its name, and is restored in place as it was saved."""

from dataclasses import dataclass

from everstep.saving.memory import Copy
from everstep.state.arrays import array_view
from everstep.state.views import OTHER_MODEL, Copies, Found, RestoreError, ShardView, State
from everstep_common.trainer_messages import Entry


class PlainCapture:
    """The Capture of a mapping of arrays, or of callables that return them."""

    needs_description = False

    def __init__(self, state: State) -> None:
        self._state = state

    def views(self) -> tuple[ShardView, ...]:
        """See Capture; in the mapping's order."""
        return tuple(
            array_view(name, array() if callable(array) else array)
            for name, array in self._state.items()
        )

    def targets(self, described: tuple[Entry, ...]) -> "PlainRestoration":
        """See Capture; the names of the state are the shards to ask for."""
        return PlainRestoration(self.views())


@dataclass(frozen=True, slots=True)
class PlainRestoration:
    """The Restoration of plain arrays."""

    shards: tuple[ShardView, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """See Restoration."""
        return tuple(shard.name for shard in self.shards)

    def fill(self, found: Found, copier: Copies) -> None:
        """See Restoration."""
        copies = self.copies(found)
        pairs = list(zip(self.shards, copies, strict=True))
        copier.copy([copy for shard, copy in pairs if shard.cuda is None])
        for shard, copy in pairs:
            if shard.cuda is not None:
                from everstep.saving.cuda import upload  # torch is there: the state has its tensors

                upload(shard.cuda, copy.from_address)

    def copies(self, found: Found) -> list[Copy]:
        """Return what `fill` copies. Raises RestoreError."""
        return [_matched(shard, found) for shard in self.shards]

    def finish(self) -> None:
        """See Restoration; there is nothing more to do."""


def _matched(shard: ShardView, found: Found) -> Copy:
    if shard.name not in found:
        raise RestoreError(f"no copy holds shard {shard.name!r}{OTHER_MODEL}")
    entry, address = found[shard.name]
    saved = (entry.size_bytes, entry.format, entry.shape)
    here = (shard.size_bytes, shard.format, shard.shape)
    if saved != here:
        raise RestoreError(
            f"shard {shard.name!r} was saved as (bytes, format, shape) {saved}, but is {here} here"
            + OTHER_MODEL
        )
    return Copy(shard.address, address, shard.size_bytes)
