"""Parts of arrays that this process has: who has the same bytes and saves which.

Each goes under a name of its own.
"""

import heapq
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from everstep.copy_engine.views import ShardView
from everstep.state.shards.regions import Region, whole
from everstep_common.shard_names import private_name

# More shares make a step need more ranks' copies; sixteen make the copy short enough.
SHARES_MAX = 16


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a process among those of its job."""

    rank: int = 0
    world_size: int = 1
    # Objects whose private parts may be replaced by another rank's.
    replaceable: frozenset[str] = frozenset()

    def replaces(self, path: str) -> bool:
        """Return whether another rank's private thing of this path would do."""
        return any(path.startswith((f"{name}/", f"{name}#")) for name in self.replaceable)

    def private(self, path: str) -> str:
        """Return the name of what only this process has."""
        return private_name(self.rank, path, replaceable=self.replaces(path))


@dataclass(frozen=True, slots=True)
class Replicas:
    """The processes that hold the same bytes: how many, and the how-manieth this one is."""

    group: str
    index: int
    count: int


@dataclass(frozen=True, slots=True)
class Part:
    """Part of an array that this process has."""

    path: str
    value: object
    format: str
    region: Region
    whole: tuple[int, ...]
    item_bytes: int
    # None: no other process is known to have the same bytes, it stays private to the rank.
    replicas: Replicas | None = None
    # Tells apart what groups of ranks hold under one path, when a group is not the whole world.
    mark: str = ""

    @property
    def size_bytes(self) -> int:
        """Return how much memory this process has of it."""
        return self.region.count * self.item_bytes

    def is_like(self, other: "Part") -> bool:
        """Return whether it takes the other's place in what is saved."""
        return (self.path, self.region, self.whole, self.item_bytes, self.replicas) == (
            other.path,
            other.region,
            other.whole,
            other.item_bytes,
            other.replicas,
        )

    def tensor_name(self, place: Place) -> str:
        """Return the name of the whole array in the vault."""
        return place.private(self.path) if self.replicas is None else self.shared_name

    @property
    def shared_name(self) -> str:
        """Return the name that is the same in every process that has the array."""
        return self.path + self.mark

    def named(self, view: ShardView, place: Place) -> ShardView:
        """Return the view of its memory under the name in the vault."""
        tensor = self.tensor_name(place)
        if self.region == whole(self.whole):
            return replace(view, name=tensor, format=self.format, shape=self.whole)
        return replace(
            view,
            name=f"{tensor}[{self.region}]",
            format=self.format,
            shape=self.region.shape,
            tensor=tensor,
            begins=self.region.begins,
            whole=self.whole,
        )


def to_save(parts: list[Part]) -> list[Part]:
    """Return what this process saves: its private parts, and its share of what others have too.

    Every process of a group computes the same shares, from the same parts in the same order.
    """
    groups: dict[tuple[str, int], list[Part]] = {}
    for part in parts:
        if part.replicas is not None:
            groups.setdefault((part.replicas.group, part.replicas.count), []).append(part)
    given = {path for members in groups.values() for path in _others(members)}
    empty = {
        part.path for part in parts if part.size_bytes == 0 and part.region.shape != part.whole
    }
    return [part for part in parts if part.path not in given and part.path not in empty]


def _others(members: list[Part]) -> Collection[str]:
    """Return the paths of one group's parts that other processes save."""
    replicas = members[0].replicas
    if replicas is None:
        return ()
    sizes = {part.path: part.size_bytes for part in members}
    return given_to_others(sizes, replicas.index, replicas.count)


def shares_of(replicas: int) -> int:
    """Return into how many shares the state of so many equal ranks is cut."""
    return max(1, min(replicas, SHARES_MAX))


def assign(sizes: Sequence[int], shares: int) -> tuple[int, ...]:
    """Return the share of each tensor, of about equal bytes; every rank computes the same."""
    loads = [(0, share) for share in range(shares)]
    chosen = [0] * len(sizes)
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        load, share = loads[0]
        chosen[index] = share
        heapq.heapreplace(loads, (load + sizes[index], share))
    return tuple(chosen)


def given_to_others(sizes: Mapping[str, int], index: int, replicas: int) -> frozenset[str]:
    """Return what of equal tensors, by their names, other ranks than the ``index``-th save."""
    names, shares = sorted(sizes), shares_of(replicas)
    chosen = assign([sizes[name] for name in names], shares)
    own = index % shares
    return frozenset(name for name, share in zip(names, chosen, strict=True) if share != own)
