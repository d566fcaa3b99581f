"""Leaves: the arrays of a state on their way to shards; what each is, where, and who has it too."""

import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from everstep.copy_engine.views import ShardView, StateError
from everstep.state.memory.arrays import has_dtype, is_array, is_dtensor, is_tensor, readable_view
from everstep.state.shards.parts import Part, Place, Replicas, to_save
from everstep.state.shards.regions import whole

# Description of an array in the tree, as JSON of its own, for it is the same after every step:
# library, format, shape, whether it is distributed, and the path of another array that it equals.
Description = str
WORLD = "world"


class Memory(Hashable, Protocol):
    """Identity of an array's memory, by which it is told from any other."""

    @property
    def address(self) -> int:
        """Return where it begins."""
        ...

    def is_of(self, value: object, /) -> bool:
        """Return whether an array of the same library has this memory."""
        ...


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of the state as it is now; ``same_as`` is the path under which it is saved."""

    part: Part
    value: object
    library: str
    # Identity of its memory; None: it has none.
    memory: Memory | None = None
    distributed: bool = False
    same_as: str = ""

    # Description that stands in the tree in the array's place.
    description: Description = field(init=False, compare=False)

    def is_still(self, value: object) -> bool:
        """Return whether a value is this one, in the same memory."""
        memory = self.memory
        if memory is None or type(value) is not type(self.value):
            return False
        return memory.is_of(value)

    def __post_init__(self) -> None:
        """Describe once what is written after every step."""
        part = self.part
        described = [self.library, part.format, list(part.whole), self.distributed, self.same_as]
        object.__setattr__(self, "description", json.dumps(described, separators=(",", ":")))


class Collector:
    """Leaves of a tree that is written: collects every array that it meets.

    ``known`` are the leaves of the time before: a state is looked at after every step, and mostly
    lies where it lay. They keep their memory, so nothing new can lie at its address.
    """

    def __init__(
        self, place: Place, equal: Callable[[str], bool], known: Mapping[str, Leaf] | None = None
    ) -> None:
        self._place = place
        self._equal = equal
        self._known = known or {}
        self._paths: dict[Memory, str] = {}
        self.leaves: dict[str, Leaf] = {}

    def describe(self, path: str, value: object) -> object | None:
        """See Leaves."""
        leaf = self._known.get(path)
        if leaf is not None and leaf.is_still(value):
            memory = leaf.memory
        else:
            memory = _memory(value)
            leaf = self._leaf(path, value, memory)
        if leaf is None:
            return None
        first = path if memory is None else self._paths.setdefault(memory, path)
        same_as = "" if first == path else first
        if leaf.same_as != same_as:
            leaf = replace(leaf, same_as=same_as)
        if path in self.leaves:
            raise StateError(f"two arrays of the state are called {path!r}")
        self.leaves[path] = leaf
        return leaf.description

    def find(self, path: str, description: object) -> object:
        """See Leaves; not asked of one that writes."""
        raise StateError(f"array {path!r} is not read here")

    def parts(self) -> list[Part]:
        """Return what this process has, each memory once."""
        return [leaf.part for leaf in self.leaves.values() if not leaf.same_as]

    def _leaf(self, path: str, value: object, memory: Memory | None) -> Leaf | None:
        if is_dtensor(value):
            from everstep.state.memory.dtensors import local_part  # torch is there

            part = local_part(path, value, self._place)
            return Leaf(part, value, "torch", memory, distributed=True)
        if is_tensor(value):
            return Leaf(self._whole(path, value, "torch"), value, "torch", memory)
        if is_array(value):
            return Leaf(self._whole(path, value, "numpy"), value, "numpy")
        return None

    def _whole(self, path: str, value: object, library: str) -> Part:
        view = readable_view(path, value)
        if library == "numpy" and not has_dtype(view.format):
            dtype = getattr(value, "dtype", view.format)
            raise StateError(
                f"array {path!r} is of dtype {dtype}, which an object's state cannot hold; have"
                " state_dict() return its bytes, array.view('u1'), or name the array itself as a"
                " part of the state"
            )
        region = whole(view.shape)
        item_bytes = view.size_bytes // region.count if region.count else 0
        equal = self._equal(path)
        replicas = Replicas(WORLD, self._place.rank, self._place.world_size) if equal else None
        return Part(path, value, view.format, region, view.shape, item_bytes, replicas)


# A part that still lies where it was seen (None: not known), and its memory.
_Seen = tuple[Part | None, ShardView]


class Views:
    """Shard views of parts, remembered from one snapshot to the next."""

    def __init__(self, place: Place) -> None:
        self._place = place
        # Parts at the last snapshot, which of them this process saves, and their memory.
        self._parts: Sequence[Part] = ()
        self._chosen: list[bool] = []
        self._known: list[_Seen | None] = []

    def of(self, parts: Sequence[Part]) -> list[ShardView]:
        """Return the memory of what this process saves of the parts.

        What does not lie in one piece is copied each time.
        """
        if not self._is_chosen(parts):
            saved = {part.path for part in to_save(list(parts))}
            self._chosen = [part.path in saved for part in parts]
            self._known = [None] * len(parts)
        self._parts = parts
        self._known = list(map(self._look, parts, self._known, self._chosen))
        return [found[1] for found in self._known if found is not None]

    def _is_chosen(self, parts: Sequence[Part]) -> bool:
        """Return whether what to save of the parts is known: they are like those before."""
        return len(parts) == len(self._parts) and all(
            now is then or now.is_like(then) for now, then in zip(parts, self._parts, strict=True)
        )

    def _look(self, part: Part, known: _Seen | None, chosen: bool) -> _Seen | None:
        if not chosen:
            return None
        if known is not None and known[0] is part:
            return known
        view = part.named(readable_view(part.path, part.value), self._place)
        # A part that had to be copied is not remembered: it is copied anew each time.
        return (part if _address(part.value) == view.address else None), view


def _memory(value: object) -> Memory | None:
    """Return what is equal for tensors that are the same memory; None: it cannot be told."""
    if not is_tensor(value):
        return None
    from everstep.state.memory.tensors import memory_of  # torch is there

    if is_dtensor(value):
        from everstep.state.memory.dtensors import memory_of_local

        return memory_of_local(value)
    return memory_of(value)


def _address(value: object) -> int:
    """Return where a tensor's own memory lies; 0: it is no tensor, or has none."""
    memory = _memory(value)
    return memory.address if memory else 0
