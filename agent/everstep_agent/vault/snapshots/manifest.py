"""Manifest of a copy: whether it is sound, where it ends, which part of the state it is. Pure.

A manifest may have hundreds of thousands of shards. Generators yield after every few, for `slowly`.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple, TypeVar

import xxhash

from everstep_common.long_frames import Parts, finish
from everstep_common.rank_messages import Entry
from everstep_common.shard_names import is_replaceable

# Entries that are sorted at once, which takes half a millisecond.
_RUN = 2048

# How many sets a manifest's names are spread over; the largest manifest has 4,000 names in each.
_SETS = 64

K = TypeVar("K", str, tuple[int, int, str, int])
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ManifestCheck:
    """Problem of a manifest, or None; and how many bytes from the start it covers."""

    problem: str | None
    extent_bytes: int = 0


def check_in_parts(entries: tuple[Entry, ...], limit_bytes: int) -> Parts[ManifestCheck]:
    """Return whether the shards have names of their own, and places within the memory."""
    if not entries:
        return ManifestCheck("a snapshot without shards")
    if not (yield from _named(entries)):
        return ManifestCheck("shard names must be unique and not empty")
    end = 0
    for entry in (yield from _by_place(entries)):
        if entry.offset_bytes < end or entry.size_bytes < 0:
            return ManifestCheck(f"shard {entry.name!r} overlaps another one")
        end = entry.offset_bytes + entry.size_bytes
        yield
    past = f"the shards end at byte {end} of {limit_bytes}" if end > limit_bytes else None
    return ManifestCheck(past, end)


def _named(entries: tuple[Entry, ...]) -> Parts[bool]:
    """Return whether each shard has a name of its own."""
    # One set would grow, and be dropped, in steps of 5 ms.
    names: list[set[str]] = [set() for _ in range(_SETS)]
    for entry in entries:
        names[hash(entry.name) % _SETS].add(entry.name)
        yield
    count = sum(map(len, names))
    while names:
        if "" in names.pop():
            return False
        yield
    return count == len(entries)


def _by_place(entries: tuple[Entry, ...]) -> Parts[Sequence[Entry]]:
    """Return the shards in the order of their places; most manifests are in order already."""
    before = (0, 0)
    for entry in entries:
        place = (entry.offset_bytes, entry.size_bytes)
        if place < before:
            break
        before = place
        yield
    else:
        return entries
    places: list[tuple[int, int, str, int]] = []
    for number, entry in enumerate(entries):
        places.append((entry.offset_bytes, entry.size_bytes, entry.name, number))
        yield
    ordered: list[Entry] = []
    for *_, number in (yield from sorted_in_parts(places)):
        ordered.append(entries[number])
        yield
    yield from dropped_in_parts(places)
    return ordered


def dropped_in_parts(items: list[T]) -> Parts[None]:
    """Empty a list: to drop 200,000 objects at once takes 10 ms."""
    while items:
        del items[-_RUN:]
        yield


class ManifestCheckCache:
    """Cache of the last check: step after step the manifest is the same object."""

    def __init__(self) -> None:
        self._last: tuple[tuple[Entry, ...], int, ManifestCheck] = (
            (),
            0,
            ManifestCheck("nothing was checked"),
        )

    def check(self, entries: tuple[Entry, ...], limit_bytes: int) -> Parts[ManifestCheck]:
        """Return whether a manifest is sound."""
        last, limit, checked = self._last
        if not (entries and last is entries and limit == limit_bytes):
            checked = yield from check_in_parts(entries, limit_bytes)
            self._last = (entries, limit_bytes, checked)
        return checked


def entries_problem(entries: tuple[Entry, ...], limit_bytes: int) -> str | None:
    """Return what is wrong with a manifest, or None."""
    return finish(check_in_parts(entries, limit_bytes)).problem


def extent_bytes(entries: tuple[Entry, ...]) -> int:
    """Return how many bytes from the start of the memory a manifest covers."""
    return max(entry.offset_bytes + entry.size_bytes for entry in entries)


class Layout(NamedTuple):
    """Part of the state that a copy is: equal for copies with the same shards."""

    whole: bytes
    # The same without shards that another rank's may replace; b"": there are none of those.
    needed: bytes = b""


def layout_in_parts(entries: Iterable[Entry]) -> Parts[Layout]:
    """Return which part of the state a copy is."""
    names: list[str] = []
    needed: list[str] = []
    for entry in entries:
        names.append(entry.name)
        if not is_replaceable(entry.name):
            needed.append(entry.name)
        yield
    whole, some = (yield from _hash(names)), len(needed) < len(names)
    part = (yield from _hash(needed)) if some else b""
    yield from dropped_in_parts(names)
    yield from dropped_in_parts(needed)
    return Layout(whole, part)


def _hash(names: list[str]) -> Parts[bytes]:
    layout = xxhash.xxh3_128()
    ordered = yield from sorted_in_parts(names)
    for number, name in enumerate(ordered):
        layout.update((f"\0{name}" if number else name).encode())
        yield
    return bytes(layout.digest())


def names_in_parts(entries: Iterable[Entry]) -> Parts[frozenset[str]]:
    """Return the names of the shards."""
    names: set[str] = set()
    for entry in entries:
        names.add(entry.name)
        yield
    return frozenset(names)


def chosen_in_parts(entries: Iterable[Entry], names: Container[str]) -> Parts[tuple[Entry, ...]]:
    """Return the shards of these names."""
    chosen: list[Entry] = []
    for entry in entries:
        if entry.name in names:
            chosen.append(entry)
        yield
    return tuple(chosen)


def by_name_in_parts(entries: Iterable[Entry]) -> Parts[tuple[Entry, ...]]:
    """Return shards, each of a name of its own, in the order of their names."""
    named: dict[str, Entry] = {}
    for entry in entries:
        named[entry.name] = entry
        yield
    ordered: list[Entry] = []
    for name in (yield from sorted_in_parts(tuple(named))):
        ordered.append(named[name])
        yield
    return tuple(ordered)


def layout_of(entries: Iterable[Entry]) -> bytes:
    """Return the layout of all shards, at once."""
    return finish(layout_in_parts(entries)).whole


def sorted_in_parts(items: Sequence[K]) -> Parts[Sequence[K]]:
    """Return the items in order; what is in order already, as most manifests are, as it is."""
    runs: list[list[K]] = []
    in_order = True
    for begin in range(0, len(items), _RUN):
        run = sorted(items[begin : begin + _RUN])
        in_order = in_order and run == list(items[begin : begin + _RUN])
        in_order = in_order and (not runs or runs[-1][-1] <= run[0])
        runs.append(run)
        yield
    if in_order:
        return items
    merged: list[K] = []
    for item in merge(*runs):
        merged.append(item)
        yield
    return merged
