"""Restore targets: the arrays of a saved tree go into those that are there, else into new ones."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

from everstep.copy_engine.views import OTHER_MODEL, RestoreError, ShardView, StateError
from everstep.state.leaves import Collector, Description, Leaf
from everstep.state.memory.arrays import (
    array_view,
    copy_array,
    is_dtensor,
    is_tensor,
    is_writable,
    new_array,
)
from everstep.state.objects.kinds import Object
from everstep.state.shards.parts import Part, Place


def _nothing() -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class Target:
    """Memory of this process that a part of the state comes back to."""

    part: Part
    memory: ShardView
    # What is to be done once the memory is filled.
    after: Callable[[], None] = _nothing


class Finder:
    """Leaves of a tree that is read: finds the array that each names, or makes a new one."""

    def __init__(self, thing: Object, live: Mapping[str, Leaf], place: Place) -> None:
        self._thing = thing
        self._live = live
        self._place = place
        self._values: dict[str, object] = {}
        self.targets: list[Target] = []

    def describe(self, path: str, value: object) -> object | None:
        """See Leaves; not asked of one that reads."""
        raise StateError(f"{path!r} is not written here")

    def find(self, path: str, description: object) -> object:
        """See Leaves."""
        described = cast(list[object], json.loads(cast(Description, description)))
        _, word, shape, _, same_as = described
        if same_as in self._values:
            self._values[path] = self._values[str(same_as)]
            return self._values[path]
        whole = tuple(cast(list[int], shape))
        leaf = self._live.get(path)
        if leaf is None or (leaf.part.format, leaf.part.whole) != (word, whole):
            if self._thing.fixed(path):
                raise RestoreError(_mismatch(path, (word, whole), leaf))
            leaf = self._new(path, described, whole)
        self._values[path] = self._add(leaf)
        return self._values[path]

    def check_complete(self) -> None:
        """Raise RestoreError when an array is there that was not saved, but cannot be without."""
        for path in self._live:
            if path not in self._values and self._thing.fixed(path):
                raise RestoreError(f"the saved state has no tensor {path!r}{OTHER_MODEL}")

    def _new(self, path: str, described: list[object], whole: tuple[int, ...]) -> Leaf:
        library, word, _, distributed, _ = described
        if library == "torch":
            # torch is there: the state has its tensors
            from everstep.state.memory.restored_tensors import new_tensor

            value: object = new_tensor(
                path, str(word), whole, self._thing.like(path), distributed=bool(distributed)
            )
        else:
            value = new_array(str(word), whole)
        collector = Collector(self._place, self._thing.equal)
        if collector.describe(path, value) is None:
            raise StateError(
                f"array {path!r} was saved with dtype {word!r}, which is unknown here: restore it"
                " with the versions of numpy and torch that saved it"
            )
        return collector.leaves[path]

    def _add(self, leaf: Leaf) -> object:
        """Return the array, and remember where it is to be filled."""
        part, value = leaf.part, leaf.value
        if is_dtensor(value) or is_tensor(value):
            from everstep.state.memory.restored_tensors import writable  # torch is there

            memory, after = writable(part.path, part.value)
            self.targets.append(Target(part, memory, after))
            return value
        after = _nothing
        try:
            memory = array_view(part.path, value)
        except StateError:  # not in one piece: it is filled from one that is; or read-only
            staged = new_array(part.format, part.whole)
            memory = array_view(part.path, staged)
            if is_writable(value):
                after = partial(copy_array, staged, value)
            else:  # the object gets a new one
                value = staged
        self.targets.append(Target(part, memory, after))
        return value


def _mismatch(path: str, saved: object, leaf: Leaf | None) -> str:
    if leaf is None:
        return f"tensor {path!r} was saved, but is not here{OTHER_MODEL}"
    here = (leaf.part.format, leaf.part.whole)
    return f"tensor {path!r} was saved as (format, shape) {saved}, but is {here} here{OTHER_MODEL}"
