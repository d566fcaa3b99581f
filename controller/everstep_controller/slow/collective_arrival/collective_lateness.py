"""Collective lateness: who comes last to the collectives that all others wait in.

Step times are equal on all ranks, and so is the end of a collective. Who comes last spends the
least time in it: the culprit has the shortest collective. That nominates; it does not judge, for
ranks that wait for the culprit before come late as well, as all stages of its replica do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import comb

import numpy as np

from everstep_controller.slow.peers import Floats, Indices, Mask

_STEPS = 20
# Published: the judges' share of steps, and what is worth to be looked at.
_SHARE, _GAP_OF_STEP = 0.8, 0.01
# Ours: so rarely is one of a group the last one so often by chance.
_CHANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Late:
    """Late workers: in what part of the newest steps, and by how many seconds."""

    nominated: Mask
    share: Floats
    gap_s: Floats


class CollectiveLateness:
    """Watch over one collective of each group; its state is twenty steps of each worker.

    ``groups`` has the members of each group; those of one member, and workers in none, are never
    late. A worker is in one group at most. Raises ValueError where one is in two.
    """

    def __init__(self, groups: Sequence[Indices], size: int) -> None:
        used = [np.asarray(one, dtype=np.int64) for one in groups if len(one) > 1]
        self._order = np.concatenate(used) if used else np.zeros(0, dtype=np.int64)
        if len(np.unique(self._order)) < len(self._order):
            raise ValueError("a worker is in two of the groups")
        sizes = np.array([len(one) for one in used], dtype=np.int64)
        self._starts = np.cumsum(sizes) - sizes
        self._of = np.repeat(np.arange(len(sizes)), sizes)
        needed = [_needed(int(one)) for one in sizes]
        self._needed = np.repeat(np.array(needed, dtype=np.int64), sizes)
        self._size = size
        self._last: Mask = np.zeros((_STEPS, len(self._order)), dtype=np.bool_)
        self._gaps = np.full((_STEPS, len(self._order)), np.nan)
        self._lengths = np.full(_STEPS, np.nan)
        self._steps = 0

    def waited_s(self, collective_s: Floats) -> Floats:
        """Return how long each worker waited in its collective: longer than the last one of it.

        The seconds of a step without these are the worker's own, which SlowWatch compares. NaN for
        who is in no group, and in groups of which one member told nothing: it may be the last.
        """
        waited = np.full(self._size, np.nan)
        if len(self._order):
            values = collective_s[self._order]
            waited[self._order] = values - np.minimum.reduceat(values, self._starts)[self._of]
        return waited

    def observe(self, collective_s: Floats, step_s: float) -> Late:
        """Take the seconds of each worker's collective in a step, and of the whole step."""
        place = self._steps % _STEPS
        self._steps += 1
        waited = self.waited_s(collective_s)[self._order]
        # Two that come last together are both not late: neither keeps the other waiting.
        alone = self._count(waited == 0) == 1
        self._last[place] = (waited == 0) & alone[self._of] if len(alone) else False
        behind = np.where(waited > 0, waited, np.inf)
        gap = np.minimum.reduceat(behind, self._starts)[self._of] if len(alone) else behind
        self._gaps[place] = np.where(self._last[place], gap, 0.0)
        self._lengths[place] = step_s
        return self._late()

    def _count(self, which: Mask) -> Indices:
        return np.asarray(np.bincount(self._of[which], minlength=len(self._starts)))

    def _late(self) -> Late:
        times = self._last.sum(axis=0)
        gaps = np.where(self._last, self._gaps, 0.0).sum(axis=0) / np.maximum(times, 1)
        known = self._lengths[: min(self._steps, _STEPS)]
        late = (times >= self._needed) & (gaps >= _GAP_OF_STEP * float(np.nanmedian(known)))
        found = Late(
            np.zeros(self._size, dtype=np.bool_), np.zeros(self._size), np.zeros(self._size)
        )
        found.nominated[self._order] = late
        found.share[self._order] = times / len(known)
        found.gap_s[self._order] = gaps
        return found


@cache
def _needed(members: int) -> int:
    """Return in how many of twenty steps a member must be the last one; 21: that is chance."""
    least = int(np.ceil(_SHARE * _STEPS))
    chance = 1 / members
    for count in range(least, _STEPS + 1):
        tail = sum(
            comb(_STEPS, one) * chance**one * (1 - chance) ** (_STEPS - one)
            for one in range(count, _STEPS + 1)
        )
        if tail <= _CHANCE:
            return count
    return _STEPS + 1
