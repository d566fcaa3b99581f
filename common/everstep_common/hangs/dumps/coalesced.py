"""Coalesced operations: what a Flight Recorder tells of a batch, as if each were single. Pure.

NCCL runs a batch (`batch_isend_irecv`, the coalescing manager) as one. The recorder writes each of
its operations, which stay "scheduled" for ever, and after them one "coalesced", which alone tells
how far the batch has come (https://github.com/pytorch/pytorch/issues/137969). A dump of active
operations has the former of all batches, and the latter only of those that are not done. Up to
schema 2.6 a batch of sends and receives is counted among the collectives, too, and each rank of a
pipeline has another number of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from everstep_common.hangs.dumps.dump_entries import DumpEntry

_END = "coalesced"
# The first schema in which batches of sends and receives are not counted as collectives.
_COUNTED_APART = (2, 7)


@dataclass(frozen=True, slots=True)
class WorkCounts:
    """The newest work of a group that was enqueued, and completed: whatever kind it is."""

    enqueued: int
    completed: int


def without_batches(
    entries: Sequence[DumpEntry], schema: str, counts: Mapping[int, WorkCounts]
) -> list[DumpEntry]:
    """Return the operations of a dump, oldest first, each as done as its batch is."""
    groups: dict[int, list[DumpEntry]] = {}
    for one in entries:
        groups.setdefault(one.group, []).append(one)
    found: list[DumpEntry] = []
    for group, ordered in groups.items():
        if any(_may_be_of_batch(one) for one in ordered):
            found += _Group(ordered, schema, counts.get(group)).singles()
        else:
            found += ordered
    return sorted(found, key=lambda one: one.record)


def _may_be_of_batch(entry: DumpEntry) -> bool:
    return _ends_batch(entry) or (entry.is_p2p and not entry.done)


def _ends_batch(entry: DumpEntry) -> bool:
    """Return whether an entry is the last of a batch, "ALLGATHER_coalesced" or "coalesced".

    "allreduce_coalesced" is a single collective.
    """
    kind, found, _ = entry.name.rpartition(_END)
    return bool(found) and kind == kind.upper() and not entry.is_p2p


class _Group:
    """The operations of one group, of which some are of batches."""

    def __init__(
        self, entries: Sequence[DumpEntry], schema: str, counts: WorkCounts | None
    ) -> None:
        self.entries = entries
        self.counts = counts
        self.ends = [one for one in entries if _ends_batch(one)]
        self.in_batches = _share_number(entries)
        self.counted_twice = bool(self.ends) and _counts_twice(entries, schema)

    def singles(self) -> list[DumpEntry]:
        """Return what is left when each batch is told by its operations."""
        found: list[DumpEntry] = []
        batch: list[DumpEntry] = []
        for one in self.entries:
            if batch and (one.collective, one.p2p) != (batch[0].collective, batch[0].p2p):
                found += self._of_unknown_end(batch)
                batch = []
            if _ends_batch(one):
                found += _of_batch(batch, one)
                batch = []
            else:
                batch.append(one)
        found += self._of_unknown_end(batch)
        return list(map(self._counted, found))

    def _counted(self, entry: DumpEntry) -> DumpEntry:
        if not self.counted_twice:
            return entry
        return replace(entry, collective=max(0, entry.collective - entry.p2p))

    def _of_unknown_end(self, batch: Sequence[DumpEntry]) -> list[DumpEntry]:
        """Operations with one number and no end: single ones, or a batch that is done or begins."""
        if not batch or not batch[0].is_p2p or batch[0].done:
            return list(batch)
        if self._is_over(batch):
            return [replace(one, done=True) for one in batch]
        return list(batch)

    def _is_over(self, batch: Sequence[DumpEntry]) -> bool:
        if self.ends:
            # The ends of what is not done are here, and one that is older than these is done.
            return batch[0].record < self.ends[-1].record
        if self.counts is None:
            return self.in_batches
        if self.counts.enqueued == self.counts.completed:
            return batch[0].p2p <= self.counts.enqueued
        # A batch is counted when its end is written: this may be the one that its CPU is at.
        return self.in_batches and batch[0].p2p != self.counts.enqueued + 1


def _share_number(entries: Sequence[DumpEntry]) -> bool:
    """Return whether sends and receives have a number together, as those of a batch do."""
    numbers = [one.p2p for one in entries if one.is_p2p]
    return len(set(numbers)) < len(numbers)


def _of_batch(batch: Sequence[DumpEntry], end: DumpEntry) -> list[DumpEntry]:
    """Return the operations that are before the end of a batch: one for several collectives."""
    if any(one.is_p2p for one in batch):
        return [replace(one, done=end.done, raw=_with_state(one, end)) for one in batch]
    if not batch:
        return [] if end.p2p and end.done else [end]
    return [replace(batch[0], done=end.done, raw=_with_state(batch[0], end))]


def _with_state(entry: DumpEntry, end: DumpEntry) -> Mapping[str, object]:
    return {**entry.raw, "state": end.raw.get("state"), "retired": end.raw.get("retired")}


def _counts_twice(entries: Sequence[DumpEntry], schema: str) -> bool:
    """Return whether batches of sends and receives are counted among the collectives, too.

    Two in a row tell it: they have one number of collectives, or two.
    """
    batches = [one for one in entries if one.is_p2p or _ends_batch(one)]
    if not any(one.is_p2p for one in batches):
        return False
    for one, following in pairwise(entries):
        if following.is_p2p and one.p2p + 1 == following.p2p and _ends_batch(one):
            return one.collective != following.collective
    return _version(schema) < _COUNTED_APART


def _version(schema: str) -> tuple[int, int]:
    major, _, minor = schema.partition(".")
    numbers = [int(one) if one.isascii() and one.isdigit() else 99 for one in (major, minor)]
    return numbers[0], numbers[1]


def is_counted_apart(entries: Iterable[DumpEntry]) -> bool:
    """Return whether a group has sends and receives, which are counted apart."""
    return any(one.is_p2p or one.p2p for one in entries)
