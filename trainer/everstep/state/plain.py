"""Plain state: a mapping of arrays; each keeps its name, and is restored in place."""

from collections.abc import Collection
from dataclasses import dataclass

from everstep.copy_engine.memory import Copy
from everstep.copy_engine.views import OTHER_MODEL, Copies, Found, RestoreError, ShardView, State
from everstep.state.memory.arrays import array_view, buffer_view, memory_of
from everstep.state.shards.parts import Place, given_to_others
from everstep_common.rank_messages import Entry
from everstep_common.shard_names import owner, private_name

# Path that no part of a state can have, and that no restore asks for.
_PATH = "#nothing"


class PlainCapture:
    """The Capture of a mapping of arrays, or of callables that return them.

    Of those in ``equal``, which all ranks have, each rank saves its share.
    """

    def __init__(
        self, state: State, place: Place | None = None, equal: Collection[str] = ()
    ) -> None:
        self._state = state
        self._place = place or Place()
        self._equal = frozenset(equal)
        # What the views of the last step were made of: the next step has the same, as a rule.
        self._seen: list[tuple[str, object, object]] = []
        self._views: tuple[ShardView, ...] = ()

    @property
    def needs_description(self) -> bool:
        """See Capture; who asks for nothing has to hear in another way which step it is."""
        return not self._state

    def views(self) -> tuple[ShardView, ...]:
        """See Capture; in the mapping's order. The same object while all memory is the same."""
        if not self._is_as_seen():
            # Of what they are made of is noted after: the views keep it where it is.
            self._seen = []
            self._views = self.own() or (nothing_of(self._place.rank),)
            self._seen = [
                (name, array, None if callable(array) else memory_of(array))
                for name, array in self._state.items()
            ]
        return self._views

    def _is_as_seen(self) -> bool:
        """Return whether all arrays and their memory are those of the last views, as is known."""
        if not self._seen or len(self._seen) != len(self._state):
            return False
        pairs = zip(self._seen, self._state.items(), strict=True)
        return all(
            array is then and memory is not None and name == known and memory_of(array) == memory
            for (known, then, memory), (name, array) in pairs
        )

    def own(self) -> tuple[ShardView, ...]:
        """Return the memory of what this rank saves; () when others save all of it."""
        shards = self._all()
        sizes = {shard.name: shard.size_bytes for shard in shards if shard.name in self._equal}
        others = given_to_others(sizes, self._place.rank, self._place.world_size)
        return tuple(shard for shard in shards if shard.name not in others)

    def targets(self, described: tuple[Entry, ...]) -> "PlainRestoration":
        """See Capture; the names of the state are the shards to ask for."""
        return PlainRestoration(self._all())

    def _all(self) -> tuple[ShardView, ...]:
        return tuple(
            array_view(name, array() if callable(array) else array)
            for name, array in self._state.items()
        )


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
                from everstep.copy_engine.cuda import (
                    upload,  # torch is there: the state has its tensors
                )

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


def nothing_of(rank: int) -> ShardView:
    """Return the shard of a rank that saves nothing: a step is whole when every rank has a copy.

    It is the rank's own: were all of these one part of the state, a rank that fails to save what
    it has could be taken for one that has nothing.
    """
    return buffer_view(private_name(rank, _PATH), bytearray(1))


def is_nothing(name: str) -> bool:
    """Return whether a shard only says that a rank had none."""
    return owner(name)[1] == _PATH
