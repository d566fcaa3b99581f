"""Stateful capture: objects (model, optimizer, loader …) and arrays as shards, and back.

Every object has two kinds of shards: its structure, private to the rank, and its arrays. A restore
reads the structures first; they say which arrays there are.
"""

import ctypes
import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from everstep.copy_engine.views import (
    ALIGNMENT_BYTES,
    Copies,
    Found,
    Restoration,
    RestoreError,
    ShardView,
    StateError,
)
from everstep.state import tree, tree_reader
from everstep.state.filling import Filling, fill
from everstep.state.leaves import Collector, Leaf, Views
from everstep.state.memory.arrays import buffer_view
from everstep.state.objects import paths
from everstep.state.objects.kinds import Object
from everstep.state.plain import PlainCapture, PlainRestoration
from everstep.state.shards.holdings import Holdings
from everstep.state.shards.parts import Part, Place, to_save
from everstep.state.targets import Finder
from everstep_common.rank_messages import Entry

logger = logging.getLogger("everstep")


class StatefulCapture:
    """The Capture of objects with state_dict(), besides plain arrays."""

    needs_description = True

    def __init__(self, objects: Collection[Object], arrays: PlainCapture, place: Place) -> None:
        self._objects = objects
        self._arrays = arrays
        self._place = place
        self._known: dict[str, Mapping[str, Leaf]] = {}
        self._views = Views(place)

    def views(self) -> tuple[ShardView, ...]:
        """See Capture."""
        parts: list[Part] = []
        views = list(self._arrays.own())
        for thing in self._objects:
            content, collector = collected(thing, self._place, self._known.get(thing.path))
            self._known[thing.path] = collector.leaves
            views.append(self._tree_view(thing, content))
            parts += collector.parts()
        views += self._views.of(parts)
        _refuse_same_names(views)
        return tuple(views)

    def bytes_ahead(self) -> int | None:
        """See Growing."""
        objects = bytes_ahead(self._objects, self._place)
        if objects is None:
            return None
        return objects + sum(aligned(view.size_bytes) for view in self._arrays.own())

    def targets(self, described: tuple[Entry, ...]) -> Restoration:
        """See Capture: the structures come first."""
        holdings = Holdings(described, self._place)
        sources: dict[str, int] = {}
        for thing in self._objects:
            rank = holdings.source_rank(paths.tree(thing.path), own_only=thing.own_only)
            if rank is None:
                logger.warning(
                    "%s starts from scratch: rank %d has none in the step",
                    thing.path,
                    self._place.rank,
                )
            else:
                sources[thing.path] = rank
        return Structures(self, holdings, sources)

    def fillings(
        self, holdings: Holdings, sources: Mapping[str, int], found: Mapping[str, bytes]
    ) -> "Arrays":
        """Return what to do with the arrays, now that the structures are known."""
        fillings: list[Filling] = []
        loads: list[tuple[Object, object]] = []
        for thing in self._objects:
            if thing.path not in found:
                continue
            live = collected(thing, self._place)[1].leaves
            finder = Finder(thing, live, self._place)
            state = tree_reader.read(found[thing.path], thing.path, finder)
            finder.check_complete()
            thing.refuse(state)
            loads.append((thing, state))
            rank = sources[thing.path]
            fillings += [
                Filling(target, holdings.pieces(target.part, rank)) for target in finder.targets
            ]
        return Arrays(self._arrays.targets(()), tuple(fillings), tuple(loads))

    def _tree_view(self, thing: Object, content: bytes) -> ShardView:
        name = self._place.private(paths.tree(thing.path))
        return replace(buffer_view(name, bytearray(content)), format="U8")


@dataclass(slots=True)
class Structures:
    """First stage of a restore: the structure of every object's state."""

    capture: StatefulCapture
    holdings: Holdings
    # By its path, the rank whose state each object takes.
    sources: Mapping[str, int]
    _found: dict[str, bytes] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """See Restoration."""
        return tuple(self._names().values())

    def fill(self, found: Found, copier: Copies) -> None:
        """See Restoration; nothing of the state changes yet."""
        self._found = {}
        for path, name in self._names().items():
            if name not in found:
                raise RestoreError(f"no copy holds shard {name!r}")
            entry, address = found[name]
            self._found[path] = ctypes.string_at(address, entry.size_bytes)

    def finish(self) -> "Arrays":
        """See Restoration."""
        return self.capture.fillings(self.holdings, self.sources, self._found or {})

    def _names(self) -> dict[str, str]:
        return {
            path: self.holdings.private(rank, paths.tree(path))
            for path, rank in self.sources.items()
        }


@dataclass(frozen=True, slots=True)
class Arrays:
    """Second stage of a restore: the arrays themselves."""

    plain: PlainRestoration
    fillings: tuple[Filling, ...]
    loads: tuple[tuple[Object, object], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """See Restoration."""
        wanted = [piece.entry.name for filling in self.fillings for piece in filling.pieces]
        return tuple(dict.fromkeys((*self.plain.names, *wanted)))

    def fill(self, found: Found, copier: Copies) -> None:
        """See Restoration."""
        self.plain.copies(found)  # raises before anything is copied
        fill(self.fillings, found, copier)
        self.plain.fill(found, copier)

    def finish(self) -> None:
        """See Restoration."""
        for thing, state in self.loads:
            try:
                thing.load(state)
            except Exception as error:
                raise RestoreError(
                    f"{thing.path!r} did not take its state, {type(error).__name__}: {error}; other"
                    " parts of the state are restored already, so do not train on: exit"
                ) from error


def collected(
    thing: Object, place: Place, known: Mapping[str, Leaf] | None = None
) -> tuple[bytes, Collector]:
    """Return an object's structure and its arrays as they are now. Raises StateError."""
    collector = Collector(place, thing.equal, known)
    try:
        return tree.write(thing.state(), thing.path, collector), collector
    except RecursionError as error:
        raise StateError(f"{thing.path!r} holds itself, or is nested too deeply") from error


def _refuse_same_names(views: list[ShardView]) -> None:
    if len({view.name for view in views}) == len(views):
        return
    seen: set[str] = set()
    for view in views:
        if view.name in seen:
            raise StateError(f"two parts of the state are called {view.name!r}")
        seen.add(view.name)


def bytes_ahead(objects: Iterable[Object], place: Place) -> int | None:
    """Return how much of it this process will save; None where an object's growth is not known.

    Raises StateError.
    """
    parts: list[Part] = []
    total = 0
    for thing in objects:
        state = thing.state_ahead()
        if state is None:
            return None
        collector = Collector(place, thing.equal)
        total += aligned(len(tree.write(state, thing.path, collector)))
        # What stands in for the parts to come is one memory; they will be several.
        parts += [leaf.part for leaf in collector.leaves.values()]
    return total + sum(aligned(part.size_bytes) for part in to_save(parts))


def aligned(size_bytes: int) -> int:
    """Return how much of a slot a shard takes."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
